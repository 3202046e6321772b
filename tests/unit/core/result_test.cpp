// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gtest/gtest.h>

#include <upcie/result.hpp>

namespace upcie {
namespace {

TEST(Error, NamesOperationObjectErrnoAndFix) {
    const Result<int> result = fail(EBUSY, "bind", "/dev/vfio/devices/vfio0", "Close the other opener.");
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message(),
              "bind on /dev/vfio/devices/vfio0: EBUSY (Device or resource busy). Close the other opener.");
    EXPECT_TRUE(result.error().is(EBUSY));
    EXPECT_FALSE(result.error().is(EINVAL));
}

TEST(Error, KeepsVendorNameAndNumber) {
    Error error{.domain = ErrorDomain::vendor,
                .code = 801,
                .operation = "cuImport",
                .subject = "fd 3",
                .hint = "Use another handle type.",
                .code_name = "CUDA_ERROR_NOT_SUPPORTED"};
    EXPECT_EQ(error.message(), "cuImport on fd 3: CUDA_ERROR_NOT_SUPPORTED (801). Use another handle type.");
    EXPECT_FALSE(error.is(801));
}

TEST(Error, UnknownErrnoIsShownAsNumber) {
    EXPECT_EQ(errno_name(99999), "errno 99999");
}

TEST(Error, LeavesOutWhatIsNotThere) {
    Error error;
    error.code = ENOENT;
    error.operation = "open";
    EXPECT_EQ(error.message(), "open: ENOENT (No such file or directory)");
}

} // namespace
} // namespace upcie
