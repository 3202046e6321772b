// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/nvme/command.hpp>
#include <upcie/result.hpp>

namespace upcie::nvme {

/// A status as an Error: domain nvme, code is Status::raw(), code_name the specification's name. Threads: any.
[[nodiscard]] Error to_error(Status status, std::string operation, std::string subject);

/// Why a command did not do its work: its status, ETIMEDOUT, or ECANCELED after a reset of the controller.
/// Call it only when completion.ok() is false. Threads: any.
[[nodiscard]] Error to_error(const Completion& completion, std::string operation, std::string subject);

} // namespace upcie::nvme
