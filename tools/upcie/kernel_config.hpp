// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <upcie/os/system.hpp>

#include "host_roots.hpp"

namespace upcie::cli {

/// The options a kernel was built with.
class KernelConfig {
  public:
    KernelConfig() = default;
    KernelConfig(std::string source, std::string text) : source_{std::move(source)}, text_{std::move(text)} {}

    /// From /boot/config-RELEASE, /lib/modules/RELEASE/config, .../build/.config, or /proc/config.gz: the first there
    /// is. Empty when there is none, or only the compressed one and this program was built without zlib.
    [[nodiscard]] static KernelConfig read(os::System& system, const HostRoots& roots, const std::string& release);

    [[nodiscard]] bool known() const noexcept { return !source_.empty(); }
    [[nodiscard]] const std::string& source() const noexcept { return source_; }
    /// 'y', 'm', or 'n' (also for an option this kernel does not have); nullopt when no configuration was found.
    [[nodiscard]] std::optional<char> option(std::string_view name) const;

  private:
    std::string source_;
    std::string text_;
};

/// Unpacks a gzip file's bytes. Empty when they are none, or without zlib.
[[nodiscard]] std::string gunzip(const std::string& packed);

} // namespace upcie::cli
