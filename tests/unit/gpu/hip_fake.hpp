// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <upcie/gpu/hip.hpp>
#include <upcie/os/system.hpp>

namespace upcie::gpu::hip {

inline const std::string fake_folder{UPCIE_FAKE_GPU_FOLDER};
inline const std::string fake_runtime = fake_folder + "/libfake_hip.so";

/// The switches of a library of the tests.
struct FakeHip {
    explicit FakeHip(const std::string& library = fake_runtime)
        : handle{::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)} {}
    void* handle;
    template <class Signature>
    Signature* function(const char* name) const {
        return reinterpret_cast<Signature*>(::dlsym(handle, name));
    }
    void fail(const char* called, int result) const {
        function<void(const char*, int)>("upcie_fake_hip_fail")(called, result);
    }
    void allow(const char* what, bool yes) const {
        function<void(const char*, int)>("upcie_fake_hip_allow")(what, yes ? 1 : 0);
    }
    /// The device that was current at the last call.
    [[nodiscard]] int seen() const { return function<int()>("upcie_fake_hip_seen")(); }
    /// Handles, imports and registrations that were not given back.
    [[nodiscard]] std::size_t held() const { return function<std::size_t()>("upcie_fake_hip_held")(); }
    /// What the application does, beside this library.
    [[nodiscard]] int current() const {
        int device = -1;
        function<int(int*)>("hipGetDevice")(&device);
        return device;
    }
    void choose(int device) const { function<int(int)>("hipSetDevice")(device); }
};

struct HipTest : testing::Test {
    FakeHip fake;
    FakeHip compiler{fake_folder + "/libhiprtc.so.7"};
    void SetUp() override {
        ASSERT_NE(fake.handle, nullptr) << ::dlerror();
        ASSERT_NE(compiler.handle, nullptr) << ::dlerror();
    }
    void fail_compiler(const char* called, int result) const {
        compiler.function<void(const char*, int)>("upcie_fake_hiprtc_fail")(called, result);
    }
    static Result<Hip> open(int device = 0) { return Hip::open(os::real_system(), {device, fake_runtime, {}}); }
    static Result<Hip> open_fake(const char* name) {
        return Hip::open(os::real_system(), {0, fake_folder + "/" + name, {}});
    }
    static void expect_vendor(const Error& error, const char* operation, int code, const char* name) {
        EXPECT_EQ(error.domain, ErrorDomain::vendor);
        EXPECT_EQ(error.code, code);
        EXPECT_EQ(error.code_name, name);
        EXPECT_EQ(error.operation, operation);
        EXPECT_FALSE(error.hint.empty());
    }
    /// The next call of `step` is refused, and `call` says so.
    template <class Call>
    void expect(const char* step, const Call& call) const {
        SCOPED_TRACE(step);
        fake.fail(step, 801);
        const auto answer = call();
        ASSERT_FALSE(answer);
        expect_vendor(answer.error(), step, 801, "hipErrorNotSupported");
        EXPECT_EQ(fake.current(), 1) << "what the application chose stays";
    }
};

} // namespace upcie::gpu::hip
