// SPDX-License-Identifier: BSD-3-Clause
// AMD's own libraries where they are installed (Debian: libamdhip64-5), on a machine without an AMD GPU: what they
// answer there, and that hipRTC compiles the kernel that this library brings.
#include <algorithm>
#include <string_view>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/gpu/hip.hpp>
#include <upcie/os/system.hpp>

#include "gpu/hip/compiler.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UPCIE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define UPCIE_SANITIZED 1
#endif
#endif

namespace upcie::gpu::hip {
namespace {

using testing::HasSubstr;

constexpr const char* debian_library = "libamdhip64.so.5";

struct HipReal : testing::Test {
    void SetUp() override {
#ifdef UPCIE_SANITIZED
        GTEST_SKIP() << "AMD's libraries are not built for a sanitizer, and what they leave behind is not ours";
#endif
        void* const handle = ::dlopen(debian_library, RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            GTEST_SKIP() << debian_library << " is not installed: apt-get install libamdhip64-5";
        }
    }
    static bool has_gpu() {
        return os::real_system().access("/dev/kfd", F_OK) == 0;
    }
};

TEST_F(HipReal, SaysThatThereIsNoDevice) {
    if (has_gpu()) {
        GTEST_SKIP() << "/dev/kfd is there: tests/gpu/hip_suite.cpp is the test of a machine with a GPU";
    }
    for (const char* const library : {debian_library, ""}) { // by name, and by the search for the first that opens
        const auto opened = Hip::open(os::real_system(), {0, library, {}});
        ASSERT_FALSE(opened);
        const Error& error = opened.error();
        EXPECT_EQ(error.domain, ErrorDomain::vendor) << error.message();
        EXPECT_EQ(error.code, 100);
        EXPECT_EQ(error.code_name, "hipErrorNoDevice");
        EXPECT_EQ(error.operation, "hipGetDeviceCount");
        EXPECT_THAT(error.message(), HasSubstr("/dev/kfd"));
        EXPECT_THAT(error.message(), HasSubstr("group render"));
    }
}

TEST_F(HipReal, HipRtcCompilesTheReadingKernel) {
    auto library = DynamicLibrary::open(debian_library, "");
    ASSERT_TRUE(library);
    library->keep();
    Compiler compiler;
    ASSERT_TRUE(compiler.found_in(*library)) << "up to HIP 6 the runtime has it itself";
    const auto code = compile(compiler, reading_kernel, "gfx1030");
    ASSERT_TRUE(code) << code.error().message();
    const std::string_view text{code->data(), code->size()};
    EXPECT_EQ(text.substr(0, 4), "\x7f"
                                 "ELF");
    EXPECT_THAT(text, HasSubstr("upcie_read_dwords.kd")) << "the kernel's descriptor";

    const auto broken = compile(compiler, "extern no_such_type", "gfx1030");
    ASSERT_FALSE(broken);
    EXPECT_EQ(broken.error().domain, ErrorDomain::vendor);
    EXPECT_EQ(broken.error().code_name, "HIPRTC_ERROR_COMPILATION");
    EXPECT_THAT(broken.error().hint, HasSubstr("no_such_type"));
}

} // namespace
} // namespace upcie::gpu::hip
