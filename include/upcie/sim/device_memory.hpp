// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <upcie/gpu/runtime.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/sim/address_space.hpp>

namespace upcie::sim {

/// An importer for DeviceExports::Options that has simulated controllers reach a GPU's memory by copies of the GPU's
/// runtime: a real GPU then can be the memory of a drive that does not exist, and everything between the two is as with
/// a real one. Each export gets bus addresses of its own, made up, where nothing translates; nothing is faked of what
/// the runtime answers.
///
/// Keeps both. Errors: EBADF (the export holds no descriptor).
[[nodiscard]] memory::DeviceExports::Importer import_by_copies(std::shared_ptr<AddressSpace> space,
                                                               std::shared_ptr<gpu::Runtime> runtime);

} // namespace upcie::sim
