// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <upcie/gpu/runtime.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

namespace upcie::gpu {

/// A GPU by a name that people write: "cuda", "cuda:1", "hip:0", "stub", "stub:whole-object".
struct Name {
    enum class Flavour : std::uint8_t { cuda, hip, stub };
    Flavour flavour = Flavour::stub;
    int device = 0;                            ///< of cuda and hip, as the runtime counts
    stub::Manner manner = stub::Manner::exact; ///< of stub

    /// Error: EINVAL, with the forms that there are.
    [[nodiscard]] static Result<Name> parse(std::string_view text);
};

/// Opens the runtime of that name; libraries as the flavours find them (UPCIE_CUDA_LIBRARY, UPCIE_HIP_LIBRARY). Errors:
/// those of Cuda::open, Hip::open and Stub::create. Threads: any.
[[nodiscard]] Result<std::shared_ptr<Runtime>> open(os::System& system, const Name& name);

} // namespace upcie::gpu
