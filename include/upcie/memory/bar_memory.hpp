// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <upcie/memory/registry.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>
#include <upcie/vfio/device.hpp>

namespace upcie::memory {

/// Registers [offset, offset + length) of a BAR, so that the devices of the registry's address space read and write it
/// peer to peer. `owner` is the device whose BAR it is, which needs no driver of its own; it is kept, with the CPU's
/// mapping of the BAR, until the registration has gone and its readers have drained. registration.data() is that
/// mapping: device memory, which the CPU reads slowly.
///
/// The BAR is exported as a dma-buf and mapped by file; into a type1 container it is mapped by address. **A reset of
/// the owner, or its memory decode going off, revokes it**: the drive then reports success for what never arrives, and
/// only the data tells (docs/device-memory.md). Threads: any. Errors: EINVAL (unaligned or outside the BAR), those of
/// VfioFunction::map_region and export_bar (ENOTTY: Linux before 6.19), and of AddressSpace::map_file and map_memory.
[[nodiscard]] Result<Registration> register_bar(Registry& registry, std::shared_ptr<vfio::VfioFunction> owner,
                                                unsigned index, ByteCount offset, ByteCount length);

} // namespace upcie::memory
