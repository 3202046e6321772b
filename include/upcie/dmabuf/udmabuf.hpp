// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include <upcie/dmabuf/dma_buf.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::dmabuf {

/// A piece of a memfd; offset and length in bytes, multiples of the host's page.
struct MemfdRange {
    int memfd = -1;
    ByteCount offset;
    ByteCount length;
};

/// UDMABUF_CREATE_LIST (linux/udmabuf.h): one dma-buf of pieces of memfds in this order, so that a layout can be made
/// on purpose. The kernel holds the pages; the memfds may be closed. They must be sealed against shrinking
/// (F_SEAL_SHRINK, as memory::Buffer does) and not against writing. Threads: any. Errors: EINVAL (no pieces, an
/// unaligned one, outside its file, a memfd without its seal, more than the module's list_limit or size_limit_mb),
/// ENOENT and EACCES (/dev/udmabuf), EBADF, ENOMEM; the hint says which it can have been.
[[nodiscard]] Result<DmaBuf> create_udmabuf(os::System& system, std::span<const MemfdRange> pieces,
                                            const char* node = "/dev/udmabuf");

} // namespace upcie::dmabuf
