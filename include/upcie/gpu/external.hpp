// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace upcie::gpu {

/// The ways by which a GPU runtime may be asked to take in memory that it does not own, as a file descriptor. Which of
/// them it takes is measured, not assumed (tools/probes, the question vfio_bar_import).
enum class ExternalHandle : std::uint8_t {
    dma_buf_fd,       ///< external memory of the type DMABUF_FD: a dma-buf as it is
    opaque_fd,        ///< external memory of the type OPAQUE_FD: what a driver of the same vendor exported
    shareable_handle, ///< a POSIX descriptor of VMM memory
};
/// "dma_buf_fd", "opaque_fd", "shareable_handle"
[[nodiscard]] constexpr std::string_view to_string(ExternalHandle kind) noexcept {
    switch (kind) {
    case ExternalHandle::dma_buf_fd:
        return "dma_buf_fd";
    case ExternalHandle::opaque_fd:
        return "opaque_fd";
    case ExternalHandle::shareable_handle:
        return "shareable_handle";
    }
    return "unknown";
}

} // namespace upcie::gpu
