// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/hip/compiler.hpp"

#include <fmt/format.h>

namespace upcie::gpu::hip {

const char* const reading_kernel = R"(
extern "C" __global__ void upcie_read_dwords(const volatile unsigned* from, unsigned* to) {
    to[0] = from[0];
    to[1] = from[1];
}
)";

namespace {

tl::unexpected<Error> compiler_error(const Compiler& compiler, CompilerStatus status, const TableEntry& function,
                                     const std::string& subject, std::string hint) {
    Error result;
    result.domain = ErrorDomain::vendor;
    result.code = status;
    result.operation = function.name;
    result.subject = subject;
    result.hint = std::move(hint);
    const char* const name = compiler.error_name ? compiler.error_name(status) : nullptr;
    result.code_name = name != nullptr ? name : fmt::format("hiprtcResult {}", status);
    return tl::unexpected{std::move(result)};
}

/// What the compiler said of a program; empty when it said nothing.
std::string log_of(const Compiler& compiler, Program program) {
    std::size_t size = 0;
    if (compiler.log_size(program, &size) != compiler_success || size == 0) {
        return {};
    }
    std::string text(size, '\0');
    if (compiler.log(program, text.data()) != compiler_success) {
        return {};
    }
    text.resize(text.find('\0') < size ? text.find('\0') : size);
    return text;
}

constexpr const char* mismatch = "Is hipRTC of the same ROCm as the runtime? UPCIE_HIPRTC_LIBRARY names another.";

} // namespace

bool Compiler::found_in(const DynamicLibrary& library) {
    look_up(all, library);
    for (const TableEntry* const needed :
         std::initializer_list<const TableEntry*>{&create, &destroy, &compile, &code_size, &code, &log_size, &log}) {
        if (needed->address == nullptr) {
            return false;
        }
    }
    return true;
}

Result<std::vector<char>> compile(const Compiler& compiler, const char* source, const std::string& arch) {
    const std::string subject = fmt::format("the reading kernel for {}", arch.empty() ? "the current device" : arch);
    Program program = nullptr;
    if (const CompilerStatus status = compiler.create(&program, source, "upcie_read_dwords.hip", 0, nullptr, nullptr);
        status != compiler_success) {
        return compiler_error(compiler, status, compiler.create, subject, mismatch);
    }
    const std::string target = "--offload-arch=" + arch;
    const char* options[] = {target.c_str()};
    std::vector<char> code;
    const auto steps = [&]() -> Result<void> {
        if (const CompilerStatus status = compiler.compile(program, arch.empty() ? 0 : 1, options);
            status != compiler_success) {
            return compiler_error(compiler, status, compiler.compile, subject,
                                  fmt::format("{} The compiler said: {}", mismatch, log_of(compiler, program)));
        }
        std::size_t size = 0;
        if (const CompilerStatus status = compiler.code_size(program, &size); status != compiler_success) {
            return compiler_error(compiler, status, compiler.code_size, subject, mismatch);
        }
        code.resize(size);
        if (const CompilerStatus status = compiler.code(program, code.data()); status != compiler_success) {
            return compiler_error(compiler, status, compiler.code, subject, mismatch);
        }
        return {};
    };
    auto done = steps();
    static_cast<void>(compiler.destroy(&program));
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    return code;
}

} // namespace upcie::gpu::hip
