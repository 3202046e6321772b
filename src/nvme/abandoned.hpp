// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <upcie/units.hpp>

namespace upcie::nvme {

/// Takes memory over for the rest of the process: a controller that could not be disabled may still write to it.
void abandon(std::vector<std::shared_ptr<void>> memory, ByteCount bytes, std::string reason);

} // namespace upcie::nvme
