// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <upcie/pci/enumeration.hpp>

namespace upcie::cli {

/// Where things are on the host. Anything but the defaults is for tests.
struct HostRoots {
    pci::Roots kernel;
    std::string boot = "/boot";
    std::string modules = "/lib/modules";
    std::string loader_cache = "/etc/ld.so.cache";
    std::string os_release = "/etc/os-release";
    /// Where the probes lie; empty: beside this program, then in PATH.
    std::vector<std::string> probe_folders = {};
    /// Searched for GPU runtimes, after what the loader's cache lists. Vendors install outside the loader's path.
    std::vector<std::string> library_directories = {"/usr/lib/x86_64-linux-gnu",
                                                    "/usr/lib/aarch64-linux-gnu",
                                                    "/usr/lib64",
                                                    "/usr/lib",
                                                    "/usr/local/nvidia/lib64",
                                                    "/usr/local/cuda/compat",
                                                    "/usr/lib/wsl/lib",
                                                    "/opt/rocm/lib",
                                                    "/opt/rocm/lib64"};
};

} // namespace upcie::cli
