// SPDX-License-Identifier: BSD-3-Clause
// Memory that descriptors of others stand for: what HIP takes, what it refuses, and whose the descriptors are.
#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hip_fake.hpp"
#include "support/mock_system.hpp"

namespace upcie::gpu::hip {
namespace {

using namespace upcie::literals;
using testing::HasSubstr;

/// Of the test's file: the memory that the tests' library hands out has descriptors of its own.
int descriptors_of_the_file() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        std::error_code gone; // the iterator's own
        const auto target = std::filesystem::read_symlink(entry.path(), gone);
        count += target.native().find("hip-external") != std::string::npos ? 1 : 0;
    }
    return count;
}

struct HipExternal : HipTest {
    os::Fd file{os::real_system(), ::memfd_create("hip-external", MFD_CLOEXEC)};
    void SetUp() override {
        HipTest::SetUp();
        ASSERT_EQ(::ftruncate(file.get(), 64 << 10), 0);
        fake.allow("imports", true);
        fake.choose(1);
    }
    void TearDown() override {
        fake.allow("imports", false);
        fake.choose(0);
    }
};

// The answers of the Radeon: an opaque descriptor of a dma-buf is out of memory, whatever memory there is.
TEST_F(HipExternal, RefusalsAreHipsOwn) {
    fake.allow("imports", false);
    auto hip = open().value();
    const auto opaque = hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB);
    ASSERT_FALSE(opaque);
    expect_vendor(opaque.error(), "hipImportExternalMemory", 2, "hipErrorOutOfMemory");
    const auto shared = hip.import_external(ExternalHandle::shareable_handle, file.get(), 64_KiB);
    ASSERT_FALSE(shared);
    expect_vendor(shared.error(), "hipMemImportFromShareableHandle", 1, "hipErrorInvalidValue");
    EXPECT_EQ(descriptors_of_the_file(), 1);
}

TEST_F(HipExternal, ADmaBufIsNotAskedFor) {
    auto hip = open().value();
    fake.fail("hipImportExternalMemory", 999);
    const auto refused = hip.import_external(ExternalHandle::dma_buf_fd, file.get(), 64_KiB);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENOTSUP));
    EXPECT_THAT(refused.error().message(), HasSubstr("ends at NvSciBuf"));
    EXPECT_EQ(hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB).error().code, 999)
        << "the scripted failure was still there: nothing was called";
    EXPECT_TRUE(hip.import_external(ExternalHandle::opaque_fd, file.get(), 0_B).error().is(EINVAL));
}

TEST_F(HipExternal, AnOpaqueDescriptorStaysTheCallersAndItsDuplicateIsHips) {
    auto hip = open().value();
    const auto base = hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB);
    ASSERT_TRUE(base) << base.error().message();
    EXPECT_EQ(fake.current(), 1);
    EXPECT_EQ(fake.seen(), 0);
    EXPECT_EQ(descriptors_of_the_file(), 2) << "HIP has its own";
    EXPECT_EQ(hip.allocation_of(*base).value().size, 64_KiB);
    EXPECT_EQ(hip.read_by_copy(*base).value(), 0U);
    EXPECT_TRUE(hip.release_external(*base));
    EXPECT_EQ(descriptors_of_the_file(), 1);
    EXPECT_FALSE(hip.allocation_of(*base)) << "given back";
    EXPECT_TRUE(hip.release_external(*base).error().is(EINVAL)) << "once";
    EXPECT_EQ(::ftruncate(file.get(), 128 << 10), 0) << "the caller's is open";
}

TEST_F(HipExternal, AHandleIsGivenByNumberOrByPointerAsTheVersionHasIt) {
    for (const char* const library : {"libfake_hip.so", "libfake_hip_6.so"}) {
        const FakeHip runtime{fake_folder + "/" + library};
        runtime.allow("imports", true);
        auto hip = open_fake(library).value();
        const auto base = hip.import_external(ExternalHandle::shareable_handle, file.get(), 60_KiB + 1_B);
        ASSERT_TRUE(base) << library << ": " << base.error().message();
        EXPECT_EQ(descriptors_of_the_file(), 1) << "nothing is taken over";
        EXPECT_EQ(hip.allocation_of(*base).value().base, *base);
        EXPECT_TRUE(hip.release_external(*base));
        EXPECT_TRUE(hip.release_external(*base).error().is(EINVAL));
        EXPECT_FALSE(hip.allocation_of(*base));
        runtime.allow("imports", false);
    }
}

TEST_F(HipExternal, EveryStepFailsWithItsOwnNameAndLeavesNothing) {
    auto hip = open().value();
    const std::size_t held = fake.held();
    for (const char* const step : {"hipImportExternalMemory", "hipExternalMemoryGetMappedBuffer"}) {
        expect(step, [&] { return hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB); });
        EXPECT_EQ(descriptors_of_the_file(), 1) << step;
    }
    for (const char* const step : {"hipMemGetAllocationGranularity", "hipMemImportFromShareableHandle",
                                   "hipMemAddressReserve", "hipMemMap", "hipMemSetAccess"}) {
        expect(step, [&] { return hip.import_external(ExternalHandle::shareable_handle, file.get(), 64_KiB); });
    }
    EXPECT_EQ(fake.held(), held);
    for (const char* const step : {"hipFree", "hipDestroyExternalMemory"}) {
        const DevicePointer base = hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB).value();
        expect(step, [&] { return hip.release_external(base); });
        EXPECT_TRUE(hip.release_external(base).error().is(EINVAL)) << "it counts as gone";
    }
    const DevicePointer base = hip.import_external(ExternalHandle::shareable_handle, file.get(), 64_KiB).value();
    expect("hipMemUnmap", [&] { return hip.release_external(base); });
}

TEST_F(HipExternal, WithoutADescriptorToSpareNothingIsAsked) {
    test::MockSystem system;
    auto hip = Hip::open(system, {0, fake_runtime, {}}).value();
    EXPECT_CALL(system, fcntl).WillOnce([](int, int, long) {
        errno = EMFILE;
        return -1;
    });
    const auto refused = hip.import_external(ExternalHandle::opaque_fd, file.get(), 64_KiB);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(EMFILE));
    EXPECT_THAT(refused.error().hint, HasSubstr("ulimit"));
}

} // namespace
} // namespace upcie::gpu::hip
