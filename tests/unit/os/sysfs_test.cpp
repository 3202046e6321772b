// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include <support/mock_system.hpp>
#include <upcie/os/sysfs.hpp>

namespace upcie::os {
namespace {

using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::HasSubstr;

class Sysfs : public testing::Test {
  protected:
    Sysfs() {
        std::string pattern = (std::filesystem::temp_directory_path() / "upcie-sysfs-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
    }
    ~Sysfs() override { std::filesystem::remove_all(folder_); }
    std::string put(const std::string& name, const std::string& text) const {
        const std::string path = folder_ + "/" + name;
        std::ofstream{path} << text;
        return path;
    }
    System& system_ = real_system();
    std::string folder_;
};

TEST_F(Sysfs, TextLosesItsTrailingNewlineOnly) {
    EXPECT_EQ(*read_text(system_, put("a", " two words \n")), " two words");
    EXPECT_EQ(*read_text(system_, put("b", "")), "");
    EXPECT_EQ(*read_text(system_, put("c", "\n\n")), "");
    EXPECT_EQ(read_text(system_, put("d", std::string(10000, 'x')))->size(), 10000U);
    EXPECT_TRUE(read_text(system_, folder_ + "/none").error().is(ENOENT));
    EXPECT_TRUE(read_text(system_, put("e", std::string((1U << 20) + 1, 'x'))).error().is(EFBIG));
}

TEST_F(Sysfs, NumbersAreStrict) {
    EXPECT_EQ(*read_hex(system_, put("class", "0x010802\n")), 0x010802U);
    EXPECT_EQ(*read_hex(system_, put("bare", "1b36\n")), 0x1b36U);
    EXPECT_EQ(*read_hex(system_, put("max", "0xffffffffffffffff")), ~0ULL);
    EXPECT_EQ(*read_decimal(system_, put("numa", "-1\n")), -1);
    for (const char* bad : {"", "0x", "0x12 ", "zz", "0x1ffffffffffffffff", "-1", "0x0x1"}) {
        const auto number = read_hex(system_, put("bad", std::string{bad} + "|"));
        ASSERT_FALSE(number) << bad;
        EXPECT_TRUE(number.error().is(EPROTO)) << bad;
        std::uint64_t value = 0;
        EXPECT_FALSE(parse_hex(bad, value)) << bad;
    }
    EXPECT_TRUE(read_decimal(system_, put("hex", "0x10")).error().is(EPROTO));
    EXPECT_TRUE(read_decimal(system_, put("big", "9223372036854775808")).error().is(EPROTO));
}

TEST_F(Sysfs, WritesInOneCall) {
    const std::string path = put("override", "");
    ASSERT_TRUE(write_text(system_, path, "vfio-pci"));
    EXPECT_EQ(*read_text(system_, path), "vfio-pci");
    MockSystem mock;
    EXPECT_CALL(mock, write(_, _, 8)).WillOnce(fails_with(EINVAL));
    const auto refused = write_text(mock, path, "vfio-pci");
    EXPECT_TRUE(refused.error().is(EINVAL));
    EXPECT_THAT(refused.error().hint, HasSubstr("vfio-pci"));
    EXPECT_CALL(mock, write(_, _, 8)).WillOnce(testing::Return(3));
    EXPECT_TRUE(write_text(mock, path, "vfio-pci").error().is(EIO));
}

TEST_F(Sysfs, LinksAndLists) {
    const std::string link = folder_ + "/driver";
    std::filesystem::create_symlink("../../bus/pci/drivers/nvme", link);
    EXPECT_EQ(*link_target(system_, link), "../../bus/pci/drivers/nvme");
    EXPECT_EQ(*link_name(system_, link), "nvme");
    EXPECT_TRUE(link_name(system_, put("file", "")).error().is(EINVAL));
    EXPECT_FALSE(exists(system_, link)); // dangling
    EXPECT_TRUE(exists(system_, folder_));
    put("b", "");
    put("a", "");
    EXPECT_EQ(*list_names(system_, folder_), (std::vector<std::string>{"a", "b", "driver", "file"}));
    EXPECT_TRUE(list_names(system_, folder_ + "/none").error().is(ENOENT));
}

TEST_F(Sysfs, ReadingRetriesWhenInterruptedAndReportsOtherFailures) {
    MockSystem mock;
    const std::string path = put("a", "text");
    EXPECT_CALL(mock, read(_, _, _))
        .WillOnce(fails_with(EINTR))
        .WillOnce([](int, void* data, std::size_t) -> ssize_t {
            std::memcpy(data, "ab", 2);
            return 2;
        })
        .WillOnce(testing::Return(0));
    EXPECT_EQ(*read_text(mock, path), "ab");
    EXPECT_CALL(mock, read(_, _, _)).WillOnce(fails_with(EIO));
    EXPECT_TRUE(read_text(mock, path).error().is(EIO));
}

} // namespace
} // namespace upcie::os
