// SPDX-License-Identifier: BSD-3-Clause
// Every way in which CUDA can fail, by the tests' own library; what must work is in tests/gpu/cuda_suite.cpp.
#include <cerrno>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/mock_system.hpp>
#include <upcie/gpu/cuda.hpp>
#include <upcie/os/system.hpp>

namespace upcie::gpu::cuda {
namespace {

using namespace upcie::literals;
using testing::HasSubstr;

const std::string folder{UPCIE_FAKE_GPU_FOLDER};
const std::string fake_library = folder + "/libfake_cuda.so";

/// The fake's own switches.
struct Fake {
    void* handle = ::dlopen(fake_library.c_str(), RTLD_NOW | RTLD_LOCAL);
    template <class Signature>
    Signature* function(const char* name) const {
        return reinterpret_cast<Signature*>(::dlsym(handle, name));
    }
    void fail(const char* called, int result) const {
        function<void(const char*, int)>("upcie_fake_cuda_fail")(called, result);
    }
    [[nodiscard]] int contexts() const { return function<int()>("upcie_fake_cuda_contexts")(); }
    [[nodiscard]] int retained() const { return function<int()>("upcie_fake_cuda_retained")(); }
};

struct CudaTest : testing::Test {
    Fake fake;
    void SetUp() override { ASSERT_NE(fake.handle, nullptr) << ::dlerror(); }
    static Result<Cuda> open(int device = 0) { return Cuda::open(os::real_system(), {device, fake_library}); }
    static void expect_vendor(const Error& error, const char* operation, int code, const char* name) {
        EXPECT_EQ(error.domain, ErrorDomain::vendor);
        EXPECT_EQ(error.code, code);
        EXPECT_EQ(error.code_name, name);
        EXPECT_EQ(error.operation, operation);
    }
};

TEST_F(CudaTest, TheLibraryIsFoundByOptionByVariableOrByName) {
    const auto missing = Cuda::open(os::real_system(), {0, "/nowhere/libcuda.so"});
    ASSERT_FALSE(missing);
    EXPECT_TRUE(missing.error().is(ENOENT));
    EXPECT_THAT(missing.error().message(), HasSubstr("UPCIE_CUDA_LIBRARY"));
    ::setenv("UPCIE_CUDA_LIBRARY", fake_library.c_str(), 1);
    EXPECT_TRUE(Cuda::open(os::real_system()));
    ::unsetenv("UPCIE_CUDA_LIBRARY");
}

TEST_F(CudaTest, ALibraryThatIsNoneSaysWhatItLacks) {
    for (const std::string& library : {folder + "/libfake_cuda_empty.so", std::string{"libm.so.6"}}) {
        const auto refused = Cuda::open(os::real_system(), {0, library});
        ASSERT_FALSE(refused) << library;
        EXPECT_TRUE(refused.error().is(ENOSYS)) << library;
        EXPECT_THAT(refused.error().message(), HasSubstr("cuInit")) << library;
    }
}

TEST_F(CudaTest, AFileThatIsNoLibraryIsToldFromNone) {
    EXPECT_TRUE(Cuda::open(os::real_system(), {0, "/etc/passwd"}).error().is(ELIBBAD));
    EXPECT_TRUE(Cuda::open(os::real_system(), {0, "/dev/null"}).error().is(ELIBBAD));
    EXPECT_TRUE(Cuda::open(os::real_system(), {0, "/etc/passwd/libcuda.so"}).error().is(ENOENT));
}

// A real library would make device nodes: it is not asked where the kernel module is not loaded.
TEST_F(CudaTest, WithoutTheKernelModuleNothingIsAsked) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, stat(testing::_, testing::_)).WillByDefault(test::fails_with(ENOENT));
    const auto refused = Cuda::open(system, {0, folder + "/libfake_cuda_unmarked.so"});
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENODEV)) << refused.error().message();
    EXPECT_THAT(refused.error().message(), HasSubstr("modprobe nvidia"));
    EXPECT_TRUE(Cuda::open(system, {0, fake_library})) << "the tests' own asks no kernel";
}

TEST_F(CudaTest, AnOldDriverNamesTheVersionThatHasIt) {
    auto old = Cuda::open(os::real_system(), {0, folder + "/libfake_cuda_old.so"});
    ASSERT_TRUE(old) << old.error().message();
    const DevicePointer base = old->allocate(4_MiB).value();
    const auto exported = old->export_range(base, 4_KiB);
    ASSERT_FALSE(exported);
    EXPECT_TRUE(exported.error().is(ENOSYS));
    EXPECT_THAT(exported.error().message(), HasSubstr("comes with CUDA 11.7, and this driver is of CUDA 9.2"));
    EXPECT_THAT(old->allocate(MemoryKind::pool, 4_KiB).error().message(), HasSubstr("CUDA 11.2"));
    EXPECT_THAT(old->allocate(MemoryKind::vmm, 4_KiB).error().message(), HasSubstr("CUDA 10.2"));
    EXPECT_EQ(old->reported_granularity(), 0_B);
    EXPECT_EQ(old->identity().uuid, (std::array<std::uint8_t, 16>{}));
    EXPECT_TRUE(old->free(base));
}

TEST_F(CudaTest, OpeningFailsWithCudasOwnWord) {
    const char* const steps[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"};
    const int before = fake.retained();
    for (const char* const step : steps) {
        fake.fail(step, 100);
        const auto opened = open();
        ASSERT_FALSE(opened) << step;
        expect_vendor(opened.error(), step, 100, "CUDA_ERROR_NO_DEVICE");
    }
    EXPECT_EQ(fake.retained(), before);
    EXPECT_TRUE(open(3).error().is(ENODEV));
    EXPECT_THAT(open(3).error().message(), HasSubstr("devices 0 to 0"));
    EXPECT_TRUE(open(-1).error().is(ENODEV));
    ::setenv("UPCIE_FAKE_GPU_NONE", "1", 1);
    EXPECT_THAT(open().error().message(), HasSubstr("nvidia-smi"));
    ::unsetenv("UPCIE_FAKE_GPU_NONE");
}

TEST_F(CudaTest, WhatADriverDoesNotTellIsEmpty) {
    for (const char* const step : {"cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDeviceGetUuid_v2",
                                   "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuMemGetAllocationGranularity"}) {
        fake.fail(step, 999);
    }
    const auto opened = open();
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->identity().name, "");
    EXPECT_EQ(opened->identity().pci, "");
    EXPECT_EQ(opened->identity().memory, 0_B);
    EXPECT_FALSE(opened->identity().dma_buf);
    EXPECT_EQ(opened->reported_granularity(), 0_B);
    EXPECT_THAT(opened->describe(), HasSubstr("a GPU without a name"));
}

TEST_F(CudaTest, TheContextIsCurrentForACallAndGivenBackAtTheEnd) {
    const int before = fake.retained();
    {
        auto cuda = open().value();
        const Cuda copy = cuda;
        EXPECT_EQ(fake.retained(), before + 1) << "copies share";
        const DevicePointer base = cuda.allocate(4_KiB).value();
        EXPECT_EQ(fake.contexts(), 0);
        EXPECT_TRUE(cuda.read_by_kernel(base));
        EXPECT_EQ(fake.contexts(), 0);
        fake.fail("cuMemFree_v2", 1);
        EXPECT_FALSE(cuda.free(base));
        EXPECT_EQ(fake.contexts(), 0) << "also after an error";
        EXPECT_TRUE(cuda.free(base));
        fake.fail("cuCtxPushCurrent_v2", 999);
        const auto lost = cuda.allocation_of(base);
        ASSERT_FALSE(lost);
        expect_vendor(lost.error(), "cuCtxPushCurrent_v2", 999, "CUDA_ERROR_UNKNOWN");
    }
    EXPECT_EQ(fake.retained(), before);
}

TEST_F(CudaTest, EveryCallFailsWithItsOwnName) {
    auto cuda = open().value();
    const DevicePointer base = cuda.allocate(4_MiB).value();
    std::uint64_t word = 0;
    alignas(4096) static std::byte mmio[4096];
    const auto expect = [&](const char* step, const auto& call) {
        SCOPED_TRACE(step);
        fake.fail(step, 801);
        const auto answer = call();
        ASSERT_FALSE(answer);
        expect_vendor(answer.error(), step, 801, "CUDA_ERROR_NOT_SUPPORTED");
        EXPECT_EQ(fake.contexts(), 0);
    };
    expect("cuMemAlloc_v2", [&] { return cuda.allocate(4_KiB); });
    expect("cuMemAllocAsync", [&] { return cuda.allocate(MemoryKind::pool, 4_KiB); });
    expect("cuCtxSynchronize", [&] { return cuda.allocate(MemoryKind::pool, 4_KiB); });
    expect("cuMemAllocManaged", [&] { return cuda.allocate(MemoryKind::managed, 4_KiB); });
    expect("cuMemAllocHost_v2", [&] { return cuda.allocate(MemoryKind::host, 4_KiB); });
    for (const char* const step : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
        expect(step, [&] { return cuda.allocate(MemoryKind::vmm, 4_KiB); });
    }
    const DevicePointer mapped = cuda.allocate(MemoryKind::vmm, 4_KiB).value();
    expect("cuMemUnmap", [&] { return cuda.free(MemoryKind::vmm, mapped); });
    EXPECT_TRUE(cuda.free(MemoryKind::vmm, mapped).error().is(EINVAL)) << "it is gone all the same";
    expect("cuMemGetAddressRange_v2", [&] { return cuda.allocation_of(base); });
    expect("cuMemGetHandleForAddressRange", [&] { return cuda.export_range(base, 4_KiB); });
    expect("cuMemcpyHtoD_v2", [&] { return cuda.copy_to_device(base, &word, 8_B); });
    expect("cuMemcpyDtoH_v2", [&] { return cuda.copy_to_host(&word, base, 8_B); });
    for (const char* const step : {"cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2", "cuLaunchKernel",
                                   "cuCtxSynchronize", "cuMemcpyDtoH_v2"}) {
        expect(step, [&] { return cuda.read_by_kernel(base); });
    }
    expect("cuMemHostRegister_v2", [&] { return cuda.register_mmio(mmio, 4_KiB); });
    expect("cuMemHostGetDevicePointer_v2", [&] { return cuda.register_mmio(mmio, 4_KiB); });
    const auto reached = cuda.register_mmio(mmio, 4_KiB);
    ASSERT_TRUE(reached) << "what failed before left nothing registered: " << reached.error().message();
    mmio[0] = std::byte{42};
    EXPECT_EQ(cuda.read_by_kernel(*reached).value() & 0xff, 42U);
    expect("cuMemHostUnregister", [&] { return cuda.unregister_mmio(mmio); });
    EXPECT_TRUE(cuda.unregister_mmio(mmio));
    expect("cuMemHostRegister_v2", [&] { return cuda.register_host(mmio, 4_KiB); });
    expect("cuMemHostGetDevicePointer_v2", [&] { return cuda.register_host(mmio, 4_KiB); });
    EXPECT_TRUE(cuda.register_host(mmio, 4_KiB)) << "what failed before left nothing registered";
    expect("cuMemHostUnregister", [&] { return cuda.unregister_host(mmio); });
    EXPECT_TRUE(cuda.unregister_host(mmio));
    fake.fail("cuMemAlloc_v2", 12345);
    EXPECT_EQ(cuda.allocate(4_KiB).error().code_name, "CUresult 12345") << "a number without a name";
    EXPECT_TRUE(cuda.free(base));
}

// As measured on an A6000; ordinary memory asks for no privilege.
TEST_F(CudaTest, MmioTakesPrivilegeAtTheCall) {
    alignas(4096) static std::byte memory[4096];
    auto cuda = open().value();
    ::setenv("UPCIE_FAKE_GPU_PRIVILEGE", "63", 1); // a capability that nobody has
    const auto refused = cuda.register_mmio(memory, 4_KiB);
    const auto ordinary = cuda.register_host(memory, 4_KiB);
    ::unsetenv("UPCIE_FAKE_GPU_PRIVILEGE");
    ASSERT_FALSE(refused);
    expect_vendor(refused.error(), "cuMemHostRegister_v2", 800, "CUDA_ERROR_NOT_PERMITTED");
    EXPECT_THAT(refused.error().message(), HasSubstr("run it as root"));
    EXPECT_TRUE(ordinary);
    EXPECT_TRUE(cuda.unregister_host(memory));
    EXPECT_TRUE(cuda.register_mmio(memory, 4_KiB));
    EXPECT_TRUE(cuda.unregister_mmio(memory));
}

TEST_F(CudaTest, MemoryOfOthersIsTakenGivenBackAndRefusedStepByStep) {
    auto cuda = open().value();
    const DevicePointer own = cuda.allocate(MemoryKind::vmm, 2_MiB).value();
    const os::Fd fd = cuda.export_shareable(own).value();
    const auto takes = fake.function<void(int)>("upcie_fake_cuda_takes_external");
    const auto expect = [&](const char* step, const auto& call) {
        SCOPED_TRACE(step);
        fake.fail(step, 801);
        const auto answer = call();
        ASSERT_FALSE(answer);
        expect_vendor(answer.error(), step, 801, "CUDA_ERROR_NOT_SUPPORTED");
    };
    const auto import = [&](ExternalHandle kind) { return cuda.import_external(kind, fd.get(), 2_MiB); };
    EXPECT_EQ(import(ExternalHandle::dma_buf_fd).error().code, 801) << "as measured";
    EXPECT_EQ(import(ExternalHandle::opaque_fd).error().code, 999);
    expect("cuMemExportToShareableHandle", [&] { return cuda.export_shareable(own); });
    for (const char* const step :
         {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
        expect(step, [&] { return import(ExternalHandle::shareable_handle); });
    }
    takes(1);
    for (const ExternalHandle kind : {ExternalHandle::dma_buf_fd, ExternalHandle::opaque_fd}) {
        expect("cuImportExternalMemory", [&] { return import(kind); });
        expect("cuExternalMemoryGetMappedBuffer", [&] { return import(kind); });
        const auto taken = import(kind);
        ASSERT_TRUE(taken) << taken.error().message();
        EXPECT_TRUE(cuda.release_external(*taken));
        EXPECT_TRUE(cuda.release_external(*taken).error().is(EINVAL));
        for (const char* const step : {"cuMemFree_v2", "cuDestroyExternalMemory"}) {
            const DevicePointer again = import(kind).value();
            expect(step, [&] { return cuda.release_external(again); });
            EXPECT_TRUE(cuda.release_external(again).error().is(EINVAL)) << "it counts as gone";
        }
    }
    takes(0);
    EXPECT_TRUE(cuda.free(MemoryKind::vmm, own));
}

TEST_F(CudaTest, PeersFailWithTheirOwnNames) {
    ::setenv("UPCIE_FAKE_GPU_TWO", "1", 1);
    auto one = open(0).value();
    auto two = open(1).value();
    ::unsetenv("UPCIE_FAKE_GPU_TWO");
    const DevicePointer here = one.allocate(4_KiB).value();
    const auto expect = [&](const char* step, const auto& call) {
        SCOPED_TRACE(step);
        fake.fail(step, 999);
        const auto answer = call();
        ASSERT_FALSE(answer);
        expect_vendor(answer.error(), step, 999, "CUDA_ERROR_UNKNOWN");
    };
    expect("cuDeviceCanAccessPeer", [&] { return one.can_reach(two); });
    expect("cuCtxEnablePeerAccess", [&] { return one.enable_peer_access(two); });
    expect("cuMemcpyPeer", [&] { return one.copy_from_peer(here, two, here, 8_B); });
    EXPECT_TRUE(one.can_reach(two).value());
    EXPECT_TRUE(one.enable_peer_access(two));
    EXPECT_TRUE(one.enable_peer_access(two)) << "again is no error";
    EXPECT_TRUE(one.copy_from_peer(here, two, here, 8_B));
    EXPECT_TRUE(one.free(here));
}

TEST_F(CudaTest, KernelsOfAnotherNvccAreReplacedByThoseInPtx) {
    auto cuda = open().value();
    fake.fail("cuModuleLoadData", 222); // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    const auto kernels = cuda.kernels();
    if (kernels) { // where nvcc built some
        EXPECT_THAT(*kernels, HasSubstr("PTX 6.4, since this driver"));
    } else {
        EXPECT_EQ(kernels.error().code, 222);
    }
    auto other = open().value();
    fake.fail("cuModuleLoadData", 999);
    EXPECT_EQ(other.kernels().error().code, 999);
    EXPECT_TRUE(other.kernels());
}

TEST_F(CudaTest, KindsHaveNames) {
    EXPECT_EQ(to_string(MemoryKind::device), "device");
    EXPECT_EQ(to_string(MemoryKind::pool), "pool");
    EXPECT_EQ(to_string(MemoryKind::vmm), "vmm");
    EXPECT_EQ(to_string(MemoryKind::managed), "managed");
    EXPECT_EQ(to_string(MemoryKind::host), "host");
    EXPECT_EQ(to_string(static_cast<MemoryKind>(99)), "unknown");
}

} // namespace
} // namespace upcie::gpu::cuda
