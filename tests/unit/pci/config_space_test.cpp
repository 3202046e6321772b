// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/config_space.hpp>

#include <cerrno>

#include <gtest/gtest.h>

#include <support/fake_function.hpp>

namespace upcie::pci {
namespace {

class ConfigSpace : public testing::Test {
  protected:
    ConfigSpace() {
        f_.set16(0x06, 0x10); // has capabilities
        f_.set8(0x34, 0x40);
        f_.set16(0x40, 0x8001 & 0xff); // power management, and the end
        f_.set8(0x41, 0);
    }
    void chain(std::initializer_list<std::pair<unsigned, unsigned>> entries) { // {offset, id}
        unsigned at = 0x34;
        for (const auto& [offset, id] : entries) {
            f_.set8(at, offset);
            f_.set8(offset, id);
            f_.set8(offset + 1, 0);
            at = offset + 1;
        }
    }
    void expect_broken() {
        f_.reads = 0;
        const auto all = capabilities(f_);
        ASSERT_FALSE(all);
        EXPECT_TRUE(all.error().is(EPROTO));
        EXPECT_LT(f_.reads, 100);
    }
    test::ConfigOnlyFunction f_;
};

TEST_F(ConfigSpace, WalksTheListInItsOrder) {
    chain({{0x60, 0x10}, {0x40, 0x01}, {0xb0, 0x11}});
    const auto all = capabilities(f_);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 3U);
    EXPECT_EQ((*all)[0].offset, 0x60U);
    EXPECT_EQ((*all)[2].id, 0x11);
    EXPECT_EQ(*find_capability(f_, CapabilityId::msix), std::optional<unsigned>{0xb0});
    EXPECT_EQ(*find_capability(f_, CapabilityId::msi), std::nullopt);
}

TEST_F(ConfigSpace, NoListNoCapabilities) {
    f_.set16(0x06, 0);
    EXPECT_TRUE(capabilities(f_)->empty());
}

TEST_F(ConfigSpace, ACircleEnds) {
    chain({{0x60, 0x10}, {0x70, 0x01}});
    f_.set8(0x71, 0x60);
    expect_broken();
    f_.set8(0x71, 0x70);
    expect_broken();
}

TEST_F(ConfigSpace, AListIntoTheHeaderIsRefused) {
    chain({{0x60, 0x10}});
    f_.set8(0x61, 0x10);
    expect_broken();
}

TEST_F(ConfigSpace, AnAbsentDeviceIsNoList) {
    f_.config.fill(0xff);
    expect_broken();
    EXPECT_FALSE(has_function_level_reset(f_));
}

TEST_F(ConfigSpace, ReadsTheMsixLayout) {
    chain({{0xb0, 0x11}});
    f_.set16(0xb2, 0x8000 | 64); // enabled, 65 vectors
    f_.set32(0xb4, 0x5200 | 0);  // where a real drive has it
    f_.set32(0xb8, 0x3000 | 4);
    const auto layout = msix_layout(f_);
    ASSERT_TRUE(layout && *layout);
    EXPECT_EQ((*layout)->vectors, 65U);
    EXPECT_EQ((*layout)->table_bar, 0U);
    EXPECT_EQ((*layout)->table_offset, ByteCount{0x5200});
    EXPECT_EQ((*layout)->pending_bar, 4U);
    EXPECT_EQ((*layout)->pending_offset, ByteCount{0x3000});
    f_.set32(0xb4, 0x5200 | 6);
    EXPECT_FALSE(msix_layout(f_)) << "there is no BAR 6";
    chain({{0x40, 0x01}});
    EXPECT_EQ(*msix_layout(f_), std::nullopt);
}

TEST_F(ConfigSpace, FindsFunctionLevelReset) {
    chain({{0x60, 0x10}});
    EXPECT_FALSE(*has_function_level_reset(f_));
    f_.set32(0x64, 1U << 28);
    EXPECT_TRUE(*has_function_level_reset(f_));
    chain({{0x60, 0x13}});
    f_.set8(0x63, 1);
    EXPECT_FALSE(*has_function_level_reset(f_));
    f_.set8(0x63, 3);
    EXPECT_TRUE(*has_function_level_reset(f_));
    chain({{0x60, 0x01}});
    EXPECT_FALSE(*has_function_level_reset(f_));
}

TEST_F(ConfigSpace, WalksTheExtendedList) {
    EXPECT_TRUE(extended_capabilities(f_)->empty()) << "not PCI Express";
    chain({{0x60, 0x10}});
    EXPECT_TRUE(extended_capabilities(f_)->empty()) << "all zeros mean none";
    f_.set32(0x100, 0x20020001); // AER version 2, next 0x200
    f_.set32(0x200, 0x00010003);
    const auto all = extended_capabilities(f_);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 2U);
    EXPECT_EQ((*all)[0].id, 1);
    EXPECT_EQ((*all)[0].version, 2);
    EXPECT_EQ((*all)[1].offset, 0x200U);
    f_.set32(0x200, 0x10010003); // a circle
    EXPECT_FALSE(extended_capabilities(f_));
    f_.set32(0x200, 0x0c010003); // into the conventional part
    EXPECT_FALSE(extended_capabilities(f_));
    f_.config_size = 256;
    EXPECT_TRUE(extended_capabilities(f_)->empty()) << "a path that shows 256 bytes";
}

} // namespace
} // namespace upcie::pci
