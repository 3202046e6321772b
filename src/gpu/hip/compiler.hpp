// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <upcie/result.hpp>

#include "gpu/function_table.hpp"

namespace upcie::gpu::hip {

using CompilerStatus = int; ///< hiprtcResult
using Program = struct ProgramTag*;

constexpr CompilerStatus compiler_success = 0;
constexpr CompilerStatus compiler_invalid_option = 5;
constexpr CompilerStatus compiler_compilation = 6;

/// hipRTC, HIP's compiler at run time (hiprtc.h). The same functions in each major.
struct Compiler {
    std::vector<TableEntry*> all;

    TableFunction<CompilerStatus(Program*, const char*, const char*, int, const char**, const char**)> create{
        all, "hiprtcCreateProgram", 0};
    TableFunction<CompilerStatus(Program*)> destroy{all, "hiprtcDestroyProgram", 0};
    TableFunction<CompilerStatus(Program, int, const char**)> compile{all, "hiprtcCompileProgram", 0};
    TableFunction<CompilerStatus(Program, std::size_t*)> code_size{all, "hiprtcGetCodeSize", 0};
    TableFunction<CompilerStatus(Program, char*)> code{all, "hiprtcGetCode", 0};
    TableFunction<CompilerStatus(Program, std::size_t*)> log_size{all, "hiprtcGetProgramLogSize", 0};
    TableFunction<CompilerStatus(Program, char*)> log{all, "hiprtcGetProgramLog", 0};
    TableFunction<const char*(CompilerStatus)> error_name{all, "hiprtcGetErrorString", 0};

    /// Looks the functions up; says whether all that is needed was there. Error names need not be.
    [[nodiscard]] bool found_in(const DynamicLibrary& library);
};

/// The entry of reading_kernel.
constexpr const char* reading_kernel_name = "upcie_read_dwords";
/// Two dwords at an address, read one by one and past any cache, as a device's registers want to be read, and put where
/// `to` says. `volatile` makes clang load with the bits for the whole system's scope (glc, dlc; sc0, sc1).
extern const char* const reading_kernel;

/// A code object of `source` for `arch`; an empty one leaves the choice to hipRTC, which takes the current device's.
/// Errors: hiprtcResult's number and name (ErrorDomain::vendor), with the compiler's own words in the hint.
[[nodiscard]] Result<std::vector<char>> compile(const Compiler& compiler, const char* source, const std::string& arch);

} // namespace upcie::gpu::hip
