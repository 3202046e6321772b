// SPDX-License-Identifier: BSD-3-Clause
// Every way in which HIP can fail, by the tests' own library; what must work is in tests/gpu/hip_suite.cpp.
#include <cerrno>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>

#include "gpu/hip/driver.hpp"
#include "hip_fake.hpp"
#include "support/mock_system.hpp"

namespace upcie::gpu::hip {
namespace {

using namespace upcie::literals;
using testing::HasSubstr;

TEST_F(HipTest, TheLibraryIsFoundByOptionOrByVariable) {
    const auto missing = Hip::open(os::real_system(), {0, "/nowhere/libamdhip64.so", {}});
    ASSERT_FALSE(missing);
    EXPECT_TRUE(missing.error().is(ENOENT));
    EXPECT_THAT(missing.error().message(), HasSubstr("UPCIE_HIP_LIBRARY"));
    ::setenv("UPCIE_HIP_LIBRARY", fake_runtime.c_str(), 1);
    EXPECT_TRUE(Hip::open(os::real_system()));
    ::setenv("UPCIE_HIP_LIBRARY", "/nowhere/libamdhip64.so.7", 1);
    const auto named = Hip::open(os::real_system());
    ASSERT_FALSE(named) << "what is named and missing is not replaced by another";
    EXPECT_TRUE(named.error().is(ENOENT));
    ::unsetenv("UPCIE_HIP_LIBRARY");
}

TEST_F(HipTest, TheFirstLibraryThatOpensIsTakenAndEachThatDoesNotIsNamed) {
    const char* const found[] = {"libnowhere.so.7", fake_runtime.c_str(), "libnowhere.so.5"};
    const auto first = open_first(found, "");
    ASSERT_TRUE(first);
    EXPECT_EQ(first->name(), fake_runtime);
    const char* const missing[] = {"libnowhere.so.7", "/etc/passwd"};
    const auto none = open_first(missing, "Install it.");
    ASSERT_FALSE(none);
    EXPECT_TRUE(none.error().is(ENOENT));
    EXPECT_EQ(none.error().subject, "libnowhere.so.7, /etc/passwd");
    for (const char* const word : {"libnowhere.so.7: cannot open", "/etc/passwd: ", "Install it."}) {
        EXPECT_THAT(none.error().hint, HasSubstr(word));
    }
}

TEST_F(HipTest, ALibraryThatIsNoneSaysWhatItLacks) {
    for (const std::string& library : {fake_folder + "/libfake_hip_empty.so", std::string{"libm.so.6"}}) {
        const auto refused = Hip::open(os::real_system(), {0, library, {}});
        ASSERT_FALSE(refused) << library;
        EXPECT_TRUE(refused.error().is(ENOSYS));
        EXPECT_THAT(refused.error().message(), HasSubstr("hipRuntimeGetVersion"));
    }
}

TEST_F(HipTest, AnUnknownMajorIsRefusedAndTheKnownOnesAreNamed) {
    const auto refused = open_fake("libfake_hip_unknown.so");
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENOTSUP));
    EXPECT_THAT(refused.error().message(), HasSubstr("HIP 9.0"));
    EXPECT_THAT(refused.error().message(), HasSubstr("the majors 5, 6, 7"));
}

TEST_F(HipTest, TheMajorIsTheRuntimesOrElseTheDrivers) {
    fake.fail("hipRuntimeGetVersion", 999);
    const auto by_driver = open();
    ASSERT_TRUE(by_driver) << by_driver.error().message();
    EXPECT_EQ(by_driver->identity().runtime_version, 0);
    EXPECT_THAT(by_driver->describe(), HasSubstr("HIP 7.1.52801 on"));
    fake.fail("hipDriverGetVersion", 999);
    EXPECT_EQ(open().value().identity().driver_version, 0);
    fake.fail("hipRuntimeGetVersion", 999);
    fake.fail("hipDriverGetVersion", 999);
    EXPECT_TRUE(open().error().is(ENOTSUP)) << "no version is no known one";
}

TEST_F(HipTest, EachMajorIsReadByItsOwnLayout) {
    for (const char* const library : {"libfake_hip.so", "libfake_hip_6.so", "libfake_hip_5.so"}) {
        const auto opened = open_fake(library);
        ASSERT_TRUE(opened) << opened.error().message();
        EXPECT_EQ(opened->identity().arch, "gfx1101") << library;
        EXPECT_TRUE(opened->identity().large_bar);
    }
    EXPECT_THAT(open_fake("libfake_hip_5.so").value().describe(),
                "HIP 5.2.21153 on Fake Radeon of the tests (gfx1101) at 0000:fb:00.0");
}

TEST_F(HipTest, AnOldRuntimeNamesTheVersionThatHasIt) {
    auto six = open_fake("libfake_hip_6.so").value();
    const DevicePointer base = six.allocate(4_MiB).value();
    const auto exported = six.export_range(base, 4_KiB);
    ASSERT_FALSE(exported);
    EXPECT_TRUE(exported.error().is(ENOSYS));
    EXPECT_THAT(exported.error().message(), HasSubstr("comes with HIP 7.0, and this runtime is of HIP 6.3.42134"));
    EXPECT_TRUE(six.free(base));
    EXPECT_EQ(six.reported_granularity(), 4_KiB);

    // Its library has functions of these names; they are not called, since their structures are others.
    auto five = open_fake("libfake_hip_5.so").value();
    EXPECT_EQ(five.reported_granularity(), 0_B);
    const auto mapped = five.allocate(MemoryKind::vmm, 4_KiB);
    ASSERT_FALSE(mapped);
    EXPECT_TRUE(mapped.error().is(ENOSYS));
    EXPECT_THAT(mapped.error().message(), HasSubstr("comes with HIP 6.0"));
    const auto managed = five.allocate(MemoryKind::managed, 4_KiB);
    ASSERT_FALSE(managed);
    EXPECT_TRUE(managed.error().is(ENOSYS));
    EXPECT_THAT(managed.error().message(), HasSubstr("this runtime of HIP 5.2.21153 lacks it"));
    const auto imported = five.import_external(ExternalHandle::shareable_handle, 0, 4_KiB);
    ASSERT_FALSE(imported);
    EXPECT_TRUE(imported.error().is(ENOSYS));
}

TEST_F(HipTest, OpeningFailsWithHipsOwnWord) {
    for (const char* const step : {"hipGetDeviceCount", "hipDeviceGet", "hipGetDevice"}) {
        fake.fail(step, 100);
        const auto opened = open();
        ASSERT_FALSE(opened) << step;
        expect_vendor(opened.error(), step, 100, "hipErrorNoDevice");
    }
    EXPECT_TRUE(open(2).error().is(ENODEV));
    EXPECT_THAT(open(2).error().message(), HasSubstr("devices 0 to 1"));
    EXPECT_TRUE(open(-1).error().is(ENODEV));
}

TEST_F(HipTest, WithoutAGpuTheHintNamesWhatToLookAt) {
    ::setenv("UPCIE_FAKE_GPU_NONE", "1", 1);
    const auto none = open();
    ::unsetenv("UPCIE_FAKE_GPU_NONE");
    ASSERT_FALSE(none);
    expect_vendor(none.error(), "hipGetDeviceCount", 100, "hipErrorNoDevice");
    for (const char* const word : {"/dev/kfd", "group render", "amdgpu"}) {
        EXPECT_THAT(none.error().hint, HasSubstr(word));
    }
    fake.allow("no-devices", true);
    const auto zero = open();
    fake.allow("no-devices", false);
    ASSERT_FALSE(zero) << "a count of 0 without an error";
    EXPECT_TRUE(zero.error().is(ENODEV));
    EXPECT_THAT(zero.error().hint, HasSubstr("/dev/kfd"));
}

TEST_F(HipTest, WhatARuntimeDoesNotTellIsEmpty) {
    for (const char* const step :
         {"hipDeviceGetName", "hipDeviceGetPCIBusId", "hipDeviceGetUuid", "hipDeviceTotalMem", "hipDeviceGetAttribute",
          "hipGetDevicePropertiesR0600", "hipMemGetAllocationGranularity"}) {
        fake.fail(step, 999);
    }
    const auto opened = open();
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->identity().name, "");
    EXPECT_EQ(opened->identity().pci, "");
    EXPECT_EQ(opened->identity().arch, "");
    EXPECT_EQ(opened->identity().uuid, (std::array<std::uint8_t, 16>{}));
    EXPECT_EQ(opened->identity().memory, 0_B);
    EXPECT_FALSE(opened->identity().large_bar);
    EXPECT_EQ(opened->reported_granularity(), 0_B);
    EXPECT_THAT(opened->describe(), HasSubstr("a GPU without a name (of unknown architecture) at an unknown address"));
}

TEST_F(HipTest, TheDeviceIsCurrentForACallAndTheApplicationsChoiceStays) {
    auto hip = open().value();
    fake.choose(1);
    const DevicePointer base = hip.allocate(4_KiB).value();
    EXPECT_EQ(fake.seen(), 0);
    EXPECT_EQ(fake.current(), 1);
    EXPECT_TRUE(hip.read_by_kernel(base));
    EXPECT_EQ(fake.seen(), 0);
    EXPECT_EQ(fake.current(), 1);
    fake.fail("hipFree", 1);
    EXPECT_FALSE(hip.free(base));
    EXPECT_EQ(fake.current(), 1) << "also after an error";
    fake.fail("hipSetDevice", 101);
    const auto lost = hip.allocation_of(base);
    ASSERT_FALSE(lost);
    expect_vendor(lost.error(), "hipSetDevice", 101, "hipErrorInvalidDevice");
    EXPECT_EQ(fake.current(), 1);
    fake.fail("hipGetDevice", 101);
    expect_vendor(hip.allocation_of(base).error(), "hipGetDevice", 101, "hipErrorInvalidDevice");
    auto second = open(1).value();
    EXPECT_EQ(second.identity().pci, "0000:fc:00.0");
    EXPECT_TRUE(second.allocation_of(base));
    EXPECT_EQ(fake.seen(), 1);
    EXPECT_TRUE(hip.free(base));
    fake.choose(0);
}

TEST_F(HipTest, EveryCallFailsWithItsOwnName) {
    auto hip = open().value();
    fake.choose(1);
    const DevicePointer base = hip.allocate(4_MiB).value();
    std::uint64_t word = 0;
    alignas(4096) static std::byte mmio[4096];
    expect("hipMalloc", [&] { return hip.allocate(4_KiB); });
    expect("hipMallocAsync", [&] { return hip.allocate(MemoryKind::pool, 4_KiB); });
    expect("hipDeviceSynchronize", [&] { return hip.allocate(MemoryKind::pool, 4_KiB); });
    expect("hipMallocManaged", [&] { return hip.allocate(MemoryKind::managed, 4_KiB); });
    expect("hipHostMalloc", [&] { return hip.allocate(MemoryKind::host, 4_KiB); });
    for (const char* const step :
         {"hipMemGetAllocationGranularity", "hipMemCreate", "hipMemAddressReserve", "hipMemMap", "hipMemSetAccess"}) {
        const std::size_t before = fake.held();
        expect(step, [&] { return hip.allocate(MemoryKind::vmm, 4_KiB); });
        EXPECT_EQ(fake.held(), before) << step;
    }
    const auto huge = hip.allocate(MemoryKind::vmm, ByteCount{~std::uint64_t{0}});
    ASSERT_FALSE(huge) << "it cannot be rounded up";
    EXPECT_EQ(huge.error().operation, "hipMemCreate");
    for (const char* const step : {"hipMemUnmap", "hipMemAddressFree", "hipMemRelease"}) {
        const DevicePointer mapped = hip.allocate(MemoryKind::vmm, 4_KiB).value();
        expect(step, [&] { return hip.free(MemoryKind::vmm, mapped); });
        EXPECT_TRUE(hip.free(MemoryKind::vmm, mapped).error().is(EINVAL)) << "it is gone all the same";
    }
    const DevicePointer pooled = hip.allocate(MemoryKind::pool, 4_KiB).value();
    expect("hipFreeAsync", [&] { return hip.free(MemoryKind::pool, pooled); });
    EXPECT_TRUE(hip.free(MemoryKind::pool, pooled));
    const DevicePointer pinned = hip.allocate(MemoryKind::host, 4_KiB).value();
    expect("hipHostFree", [&] { return hip.free(MemoryKind::host, pinned); });
    EXPECT_TRUE(hip.free(MemoryKind::host, pinned));
    expect("hipFree", [&] { return hip.free(base); });
    expect("hipMemGetAddressRange", [&] { return hip.allocation_of(base); });
    expect("hipMemGetAddressRange", [&] { return hip.free(base); });
    expect("hipMemGetAddressRange", [&] { return hip.copy_to_device(base, &word, 8_B); });
    expect("hipMemGetAddressRange", [&] { return hip.read_by_kernel(base); });
    expect("hipMemGetHandleForAddressRange", [&] { return hip.export_range(base, 4_KiB); });
    expect("hipMemcpyHtoD", [&] { return hip.copy_to_device(base, &word, 8_B); });
    expect("hipMemcpyDtoH", [&] { return hip.copy_to_host(&word, base, 8_B); });
    expect("hipMemcpyDtoH", [&] { return hip.read_by_copy(base); });
    for (const char* const step : {"hipModuleLoadData", "hipModuleGetFunction", "hipMalloc", "hipModuleLaunchKernel",
                                   "hipDeviceSynchronize", "hipMemcpyDtoH"}) {
        expect(step, [&] { return hip.read_by_kernel(base); });
    }
    fake.allow("io-memory", true);
    expect("hipHostRegister", [&] { return hip.register_mmio(mmio, 4_KiB); });
    const std::size_t before = fake.held();
    expect("hipHostGetDevicePointer", [&] { return hip.register_mmio(mmio, 4_KiB); });
    EXPECT_EQ(fake.held(), before) << "what failed left nothing registered";
    const auto reached = hip.register_mmio(mmio, 4_KiB);
    ASSERT_TRUE(reached) << reached.error().message();
    mmio[0] = std::byte{42};
    EXPECT_EQ(hip.read_by_kernel(*reached).value() & 0xff, 42U);
    expect("hipHostUnregister", [&] { return hip.unregister_mmio(mmio); });
    EXPECT_TRUE(hip.unregister_mmio(mmio));
    fake.allow("io-memory", false);
    fake.fail("hipMalloc", 12345);
    EXPECT_EQ(hip.allocate(4_KiB).error().code_name, "hipError_t 12345") << "a number without a name";
    fake.fail("hipMalloc", 999);
    EXPECT_EQ(hip.allocate(4_KiB).error().code_name, "hipErrorUnknown") << "the number of that name";
    EXPECT_TRUE(hip.free(base));
    fake.choose(0);
}

TEST_F(HipTest, MmioIsRefusedAsTheRadeonDoes) {
    auto hip = open().value();
    alignas(4096) static std::byte mmio[4096];
    const auto refused = hip.register_mmio(mmio, 4_KiB);
    ASSERT_FALSE(refused);
    expect_vendor(refused.error(), "hipHostRegister", 1, "hipErrorInvalidValue");
    EXPECT_THAT(refused.error().hint, HasSubstr("also as root"));
}

TEST_F(HipTest, AnExportDescribesTheWholeObject) {
    auto hip = open().value();
    const DevicePointer base = hip.allocate(3_MiB + 4_KiB).value();
    EXPECT_EQ(hip.allocation_of(base).value().size, 3_MiB + 4_KiB);
    for (const ByteCount offset : {0_B, 4_KiB, 512_B}) {
        const auto made = hip.export_range(base + offset, 4_KiB);
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_EQ(made->size, 4_MiB);
    }
    const auto flagged = hip.export_range(base, 4_KiB, ExportMapping::pcie);
    ASSERT_FALSE(flagged);
    expect_vendor(flagged.error(), "hipMemGetHandleForAddressRange", 1, "hipErrorInvalidValue");
    EXPECT_TRUE(hip.free(base));
}

TEST_F(HipTest, AnExportThatIsNoDescriptorIsRefused) {
    test::MockSystem system;
    auto hip = Hip::open(system, {0, fake_runtime, {}}).value();
    const DevicePointer base = hip.allocate(4_KiB).value();
    EXPECT_CALL(system, fstat).WillOnce([](int, struct stat*) {
        errno = EBADF;
        return -1;
    });
    const auto exported = hip.export_range(base, 4_KiB);
    ASSERT_FALSE(exported);
    EXPECT_TRUE(exported.error().is(EBADF));
    EXPECT_TRUE(hip.free(base));
}

// HIP frees an allocation by any pointer into it, takes what it does not know for the host's memory, and ends the
// process when a kernel faults: none of it is let through.
TEST_F(HipTest, WhatHipWouldLetThrough) {
    auto hip = open().value();
    const DevicePointer base = hip.allocate(8_KiB).value();
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pool, MemoryKind::managed}) {
        EXPECT_TRUE(hip.free(kind, base + 64_B).error().is(EINVAL));
    }
    EXPECT_EQ(hip.free(DevicePointer{0}).error().domain, ErrorDomain::vendor);
    const DevicePointer pinned = hip.allocate(MemoryKind::host, 8_KiB).value();
    EXPECT_TRUE(hip.free(MemoryKind::host, pinned + 4_KiB).error().is(EINVAL));
    EXPECT_TRUE(hip.free(MemoryKind::host, pinned));
    std::uint64_t words[2]{1, 2};
    EXPECT_TRUE(hip.copy_to_device(base + 8184_B, words, 16_B).error().is(EFAULT));
    EXPECT_TRUE(hip.copy_to_host(words, base + 8184_B, 16_B).error().is(EFAULT));
    EXPECT_TRUE(hip.copy_to_host(words, base, ByteCount{~std::uint64_t{0}}).error().is(EFAULT));
    const DevicePointer nowhere{reinterpret_cast<std::uintptr_t>(words)};
    for (const Error& error :
         {hip.copy_to_device(nowhere, words, 8_B).error(), hip.copy_to_host(words, nowhere, 8_B).error(),
          hip.read_by_copy(nowhere).error(), hip.read_by_kernel(nowhere).error()}) {
        expect_vendor(error, "hipMemGetAddressRange", 500, "hipErrorNotFound");
    }
    EXPECT_TRUE(hip.read_by_kernel(base + 4_B).error().is(EINVAL));
    EXPECT_TRUE(hip.read_by_copy(base + 4_B).error().is(EINVAL));
    EXPECT_TRUE(hip.free(base));
}

// ---- hipRTC

TEST_F(HipTest, TheKernelIsCompiledByHipRtcOfTheMajor) {
    auto seven = open().value(); // beside it: libhiprtc.so.7
    DevicePointer base = seven.allocate(4_KiB).value();
    EXPECT_EQ(seven.read_by_kernel(base).value(), 0U);
    EXPECT_TRUE(seven.free(base));
    auto six = open_fake("libfake_hip_6.so").value(); // has it itself
    base = six.allocate(4_KiB).value();
    EXPECT_EQ(six.read_by_kernel(base).value(), 0U);
    EXPECT_TRUE(six.free(base));
    auto named = Hip::open(os::real_system(), {0, fake_folder + "/libfake_hip_5.so", fake_folder + "/libhiprtc.so.7"});
    ASSERT_TRUE(named);
    base = named->allocate(4_KiB).value();
    EXPECT_EQ(named->read_by_kernel(base).value(), 0U);
    EXPECT_TRUE(named->free(base));
}

TEST_F(HipTest, WithoutHipRtcNothingIsCopiedInstead) {
    for (const char* const library : {"/nowhere/libhiprtc.so.7", "libm.so.6"}) {
        ::setenv("UPCIE_HIPRTC_LIBRARY", library, 1);
        auto hip = open().value();
        const DevicePointer base = hip.allocate(4_KiB).value();
        const auto read = hip.read_by_kernel(base);
        ::unsetenv("UPCIE_HIPRTC_LIBRARY");
        ASSERT_FALSE(read);
        EXPECT_TRUE(read.error().is(ENOSYS));
        EXPECT_THAT(read.error().message(), HasSubstr(library));
        EXPECT_THAT(read.error().message(), HasSubstr("UPCIE_HIPRTC_LIBRARY"));
        EXPECT_EQ(hip.read_by_copy(base).value(), 0U);
        EXPECT_TRUE(hip.free(base));
    }
}

TEST_F(HipTest, WhatHipRtcRefusesHasItsWords) {
    auto hip = open().value();
    const DevicePointer base = hip.allocate(4_KiB).value();
    for (const char* const step :
         {"hiprtcCreateProgram", "hiprtcCompileProgram", "hiprtcGetCodeSize", "hiprtcGetCode"}) {
        fail_compiler(step, 11);
        const auto read = hip.read_by_kernel(base);
        ASSERT_FALSE(read) << step;
        expect_vendor(read.error(), step, 11, "HIPRTC_ERROR_INTERNAL_ERROR");
        EXPECT_THAT(read.error().subject, HasSubstr("gfx1101"));
    }
    fail_compiler("hiprtcCompileProgram", 6);
    EXPECT_THAT(hip.read_by_kernel(base).error().hint, HasSubstr("The compiler said: the fake compiler's words"));
    for (const char* const step : {"hiprtcGetProgramLogSize", "hiprtcGetProgramLog"}) {
        fail_compiler("hiprtcCompileProgram", 6);
        fail_compiler(step, 11);
        const auto silent = hip.read_by_kernel(base);
        expect_vendor(silent.error(), "hiprtcCompileProgram", 6, "HIPRTC_ERROR_COMPILATION");
        EXPECT_THAT(silent.error().hint, testing::EndsWith("The compiler said: "));
    }
    fail_compiler("hiprtcCompileProgram", 77);
    EXPECT_EQ(hip.read_by_kernel(base).error().code_name, "hiprtcResult 77");
    EXPECT_TRUE(hip.read_by_kernel(base)) << "a failure is not kept";
    EXPECT_TRUE(hip.free(base));
}

TEST_F(HipTest, WithoutAnArchitectureHipRtcTakesTheCurrentDevices) {
    fake.fail("hipGetDevicePropertiesR0600", 999);
    auto hip = open().value();
    const DevicePointer base = hip.allocate(4_KiB).value();
    fail_compiler("hiprtcCreateProgram", 11);
    EXPECT_THAT(hip.read_by_kernel(base).error().subject, HasSubstr("the current device"));
    EXPECT_TRUE(hip.read_by_kernel(base));
    EXPECT_TRUE(hip.free(base));
}

TEST_F(HipTest, KindsHaveNames) {
    EXPECT_EQ(to_string(MemoryKind::device), "device");
    EXPECT_EQ(to_string(MemoryKind::pool), "pool");
    EXPECT_EQ(to_string(MemoryKind::vmm), "vmm");
    EXPECT_EQ(to_string(MemoryKind::managed), "managed");
    EXPECT_EQ(to_string(MemoryKind::host), "host");
    EXPECT_EQ(to_string(static_cast<MemoryKind>(99)), "unknown");
    EXPECT_EQ(to_string(ExternalHandle::opaque_fd), "opaque_fd");
    EXPECT_EQ(to_string(ExternalHandle::dma_buf_fd), "dma_buf_fd");
    EXPECT_EQ(to_string(ExternalHandle::shareable_handle), "shareable_handle");
    EXPECT_EQ(to_string(static_cast<ExternalHandle>(99)), "unknown");
}

} // namespace
} // namespace upcie::gpu::hip
