// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/importer.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_dma_buf.hpp>
#include <support/fake_importer.hpp>
#include <support/mock_system.hpp>
#include <support/user_emulation.hpp>

namespace upcie::dmabuf {
namespace {

using namespace upcie::literals;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StrEq;

constexpr PciFunction drive{0x10000, 0xe1, 0x1f, 7};

class ImporterTest : public testing::Test {
  protected:
    ImporterTest() {
        os::Fd fd = test::memfd(system_);
        test::show_fdinfo(system_, "size:\t12288\nexp_name:\tnv_dmabuf\n", folder_);
        buffer_ = *DmaBuf::adopt(system_, std::move(fd));
        module_.segments = {{0x8000, 8192, uapi::dmabuf_import_kind_bar, 0},
                            {0xa000, 4096, uapi::dmabuf_import_kind_bar, 0}};
    }
    Importer importer() {
        auto opened = Importer::open(system_);
        EXPECT_TRUE(opened) << opened.error().message();
        return std::move(*opened);
    }
    Error refusal(Importer::Accept accept = Importer::Accept::physical) {
        const auto made = importer().import(buffer_, drive, accept);
        EXPECT_FALSE(made);
        EXPECT_THAT(module_.handles, IsEmpty()) << "a refused import is let go of";
        return made ? Error{} : made.error();
    }

    test::MockSystem system_;
    test::FakeImporter module_{system_};
    test::TempDirectory folder_;
    DmaBuf buffer_;
};

TEST_F(ImporterTest, FactsAndAddressesComeFromTheModule) {
    const auto made = importer().import(buffer_, drive);
    ASSERT_TRUE(made) << made.error().message();
    ASSERT_EQ(module_.imports.size(), 1U);
    const auto& asked = module_.imports[0];
    EXPECT_EQ(asked.fd, buffer_.fd());
    EXPECT_EQ(asked.domain, 0x10000U);
    EXPECT_EQ(asked.bus, 0xe1U);
    EXPECT_EQ(asked.device, 0x1fU);
    EXPECT_EQ(asked.function, 7U);
    EXPECT_EQ(asked.flags, 0U);
    EXPECT_EQ(asked.reserved, 0U);
    EXPECT_EQ(made->facts().exporter, "nv_dmabuf");
    EXPECT_EQ(made->facts().size, 12_KiB);
    EXPECT_EQ(made->facts().segment_count, 2U);
    EXPECT_EQ(made->facts().pinning, Pinning::pinned);
    EXPECT_FALSE(made->facts().peer_to_peer);
    EXPECT_EQ(made->facts().addressing, Addressing::physical);
    EXPECT_THAT(made->scatter_list().runs(),
                ElementsAre(ScatterList::Run{0_B, {DmaAddress{0x8000}, 12_KiB}, SegmentKind::bar}));
}

TEST_F(ImporterTest, EveryFactAndKindIsTold) {
    module_.segments = {{0, 4096, uapi::dmabuf_import_kind_ram, 0}, {0x1000, 8192, 77, 0}};
    module_.facts.peer_to_peer = 1;
    for (const auto& [pin, pinning, text] : {std::tuple{0U, Pinning::refused, "refused"},
                                             {1U, Pinning::pinned, "pinned"},
                                             {2U, Pinning::immovable, "immovable"}}) {
        module_.facts.pin = pin;
        const auto made = importer().import(buffer_, drive);
        ASSERT_TRUE(made);
        EXPECT_EQ(made->facts().pinning, pinning);
        EXPECT_EQ(to_string(made->facts().pinning), text);
        EXPECT_TRUE(made->facts().peer_to_peer);
        ASSERT_EQ(made->scatter_list().runs().size(), 2U);
        EXPECT_EQ(made->scatter_list().runs()[0].kind, SegmentKind::ram);
        EXPECT_EQ(made->scatter_list().runs()[1].kind, SegmentKind::unknown) << "of a later module";
    }
    // A name that fills its field has no NUL behind it.
    std::fill(std::begin(module_.facts.exporter), std::end(module_.facts.exporter), 'x');
    EXPECT_EQ(importer().import(buffer_, drive)->facts().exporter, std::string(32, 'x'));
}

TEST_F(ImporterTest, AddressesThatTheFunctionMayNotUseAreRefusedWithTheReason) {
    for (const auto& [addressing, text, words] :
         {std::tuple{Addressing::default_domain, "default domain", "default DMA domain"},
          {Addressing::bounced, "bounce buffers", "DMA mask"}}) {
        module_.facts.addressing = static_cast<std::uint32_t>(addressing);
        const auto error = refusal();
        EXPECT_TRUE(error.is(EOPNOTSUPP));
        EXPECT_THAT(error.message(), HasSubstr(words));
        EXPECT_THAT(error.message(), HasSubstr("10000:e1:1f.7"));
        EXPECT_THAT(module_.reads, IsEmpty()) << "nobody even looks at them";
        const auto looked = importer().import(buffer_, drive, Importer::Accept::any);
        ASSERT_TRUE(looked);
        EXPECT_EQ(looked->facts().addressing, addressing);
        EXPECT_EQ(to_string(looked->facts().addressing), text);
        EXPECT_EQ(looked->scatter_list().total(), 12_KiB);
        module_.reads.clear();
    }
    EXPECT_EQ(to_string(Addressing::physical), "physical");
}

TEST_F(ImporterTest, LongListsAreReadPieceByPiece) {
    module_.segments.clear();
    for (std::uint64_t i = 0; i < 150'000; ++i) {
        module_.segments.push_back({i * 8192, 4096, uapi::dmabuf_import_kind_ram, 0});
    }
    module_.facts.size = 150'000 * 4096;
    test::show_fdinfo(system_, "size:\t614400000\nexp_name:\tudmabuf\n", folder_);
    buffer_ = *DmaBuf::adopt(system_, test::memfd(system_));
    const auto made = importer().import(buffer_, drive);
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->scatter_list().runs().size(), 150'000U);
    EXPECT_EQ(made->scatter_list().runs()[149'999].extent.address.value(), 149'999U * 8192);
    EXPECT_EQ(module_.reads.size(), 3U);
    module_.reads.clear();
    module_.most_a_call = 1000; // a module may write fewer than there is room for
    EXPECT_EQ(importer().import(buffer_, drive)->scatter_list().runs().size(), 150'000U);
    EXPECT_EQ(module_.reads.size(), 150U);
}

TEST_F(ImporterTest, AModuleThatContradictsItselfIsNotBelieved) {
    using Read = uapi::DmabufImportSegments;
    const std::vector<std::function<void(Read&)>> lies{[](Read& r) { r.written = 0; }, [](Read& r) { r.written = 3; },
                                                       [](Read& r) { r.total = 1; }, [](Read& r) { r.total = 3; },
                                                       [](Read& r) { r.written = ~std::uint64_t{0}; }};
    for (const auto& lie : lies) {
        module_.distort = lie;
        EXPECT_TRUE(refusal().is(EPROTO));
    }
    module_.distort = nullptr;
    const auto honest = module_.facts;
    module_.facts.size = 8192;
    EXPECT_TRUE(refusal().is(EPROTO)) << "another size than fdinfo's";
    module_.facts = honest;
    module_.facts.pin = 3;
    EXPECT_TRUE(refusal().is(EPROTO));
    module_.facts = honest;
    module_.facts.addressing = 3;
    EXPECT_TRUE(refusal(Importer::Accept::any).is(EPROTO));
}

TEST_F(ImporterTest, LessThanTheBufferIsRefused) {
    module_.segments.pop_back();
    const auto less = refusal();
    EXPECT_TRUE(less.is(ERANGE));
    EXPECT_THAT(less.message(), HasSubstr("describes 8192 bytes"));
    module_.segments.clear();
    EXPECT_TRUE(refusal().is(EINVAL)) << "no segments";
    module_.segments = {{~std::uint64_t{0}, 12288, 0, 0}};
    EXPECT_TRUE(refusal().is(EOVERFLOW));
}

TEST_F(ImporterTest, EachRefusalSaysWhatToDo) {
    for (const auto& [code, words] : {std::pair{ENXIO, "lspci -D"},
                                      {EOPNOTSUPP, "peer-to-peer"},
                                      {EINVAL, "peer-to-peer"},
                                      {ENODEV, "export it again"},
                                      {EMFILE, "release some"},
                                      {EAGAIN, "IOMMU domain"},
                                      {EIO, "bounce buffers"},
                                      {E2BIG, "segments"},
                                      {ENOMEM, "memory"},
                                      {EFAULT, "import a dma-buf on 12288 bytes of nv_dmabuf as 10000:e1:1f.7"}}) {
        module_.failures[uapi::dmabuf_import_import] = code;
        const auto error = refusal();
        EXPECT_TRUE(error.is(code));
        EXPECT_THAT(error.message(), HasSubstr(words));
    }
    for (const auto& [code, words] : {std::pair{ESTALE, "import it again"}, {ENOENT, "read the scatter list"}}) {
        module_.failures[uapi::dmabuf_import_segments] = code;
        const auto error = refusal();
        EXPECT_TRUE(error.is(code));
        EXPECT_THAT(error.message(), HasSubstr(words));
    }
    const auto nothing = importer().import(DmaBuf{}, drive);
    EXPECT_TRUE(nothing.error().is(EBADF));
}

TEST_F(ImporterTest, ASignalDoesNotEndARequest) {
    for (const auto request : {uapi::dmabuf_import_import, uapi::dmabuf_import_segments, uapi::dmabuf_import_release}) {
        module_.failures[request] = EINTR;
        EXPECT_TRUE(importer().import(buffer_, drive));
        EXPECT_THAT(module_.handles, IsEmpty());
    }
    module_.failures[uapi::dmabuf_import_version] = EINTR;
    EXPECT_TRUE(Importer::open(system_));
}

TEST_F(ImporterTest, OpeningSaysWhatIsMissing) {
    for (const auto& [code, words] :
         {std::pair{ENOENT, "modprobe upcie_dmabuf_import"}, {EACCES, "mode 0600"}, {EMFILE, "ulimit -n"}}) {
        EXPECT_CALL(system_, open(StrEq(Importer::default_node), _, _)).WillOnce(test::fails_with(code));
        const auto opened = Importer::open(system_);
        ASSERT_FALSE(opened);
        EXPECT_TRUE(opened.error().is(code));
        EXPECT_THAT(opened.error().message(), HasSubstr(words));
        EXPECT_THAT(opened.error().message(), HasSubstr(Importer::default_node));
        testing::Mock::VerifyAndClearExpectations(&system_);
    }
}

TEST_F(ImporterTest, AnotherVersionOrAnotherNodeIsRefused) {
    for (const auto& [version, words] : {std::pair{0U, "build and load"}, {2U, "newer library"}}) {
        module_.api_version = version;
        const auto opened = Importer::open(system_);
        ASSERT_FALSE(opened);
        EXPECT_TRUE(opened.error().is(EPROTONOSUPPORT));
        EXPECT_THAT(opened.error().message(), HasSubstr(words));
        EXPECT_FALSE(module_.open) << "the node is closed";
    }
    module_.failures[uapi::dmabuf_import_version] = ENOTTY;
    const auto other = Importer::open(system_);
    ASSERT_FALSE(other);
    EXPECT_TRUE(other.error().is(ENOTTY));
    EXPECT_THAT(other.error().message(), HasSubstr("not that of the module"));
    if (!test::under_user_emulation()) { // it refuses ioctls that it does not know by itself
        EXPECT_TRUE(Importer::open(os::real_system(), "/dev/null").error().is(ENOTTY)) << "the kernel's own word";
    }
}

TEST_F(ImporterTest, AnImportLivesAsLongAsItsOwnerAndNotItsImporter) {
    auto source = std::make_unique<Importer>(importer());
    auto first = source->import(buffer_, drive);
    auto second = source->import(buffer_, drive);
    ASSERT_TRUE(first && second);
    source.reset();
    buffer_ = {};
    EXPECT_TRUE(module_.open);
    EXPECT_THAT(module_.handles, ElementsAre(1U, 2U));
    Import moved = std::move(*first);
    EXPECT_TRUE(first->release().error().is(EBADF)) << "moved from";
    EXPECT_TRUE(first->revoked().error().is(EBADF));
    EXPECT_EQ(*moved.revoked(), false);
    moved = std::move(*second);
    EXPECT_THAT(module_.handles, ElementsAre(2U));
    EXPECT_TRUE(moved.release());
    EXPECT_THAT(module_.handles, IsEmpty());
    EXPECT_FALSE(module_.open);
    EXPECT_TRUE(moved.release().error().is(EBADF));
}

TEST_F(ImporterTest, AFailedReleaseIsTold) {
    auto made = importer().import(buffer_, drive);
    ASSERT_TRUE(made);
    module_.failures[uapi::dmabuf_import_release] = ENOENT;
    EXPECT_TRUE(made->release().error().is(ENOENT));
}

TEST_F(ImporterTest, RevocationIsAskedOfTheKernelAndWritesNothing) {
    const auto source = importer();
    auto one = source.import(buffer_, drive);
    auto other = source.import(buffer_, drive);
    module_.reads.clear();
    module_.revoked = {1};
    EXPECT_EQ(*one->revoked(), true);
    EXPECT_EQ(*other->revoked(), false);
    ASSERT_EQ(module_.reads.size(), 2U);
    EXPECT_EQ(module_.reads[0].capacity, 0U);
    module_.failures[uapi::dmabuf_import_segments] = EIO;
    EXPECT_TRUE(one->revoked().error().is(EIO)) << "neither yes nor no";
}

TEST_F(ImporterTest, WaitsForRevocation) {
    const auto source = importer();
    const auto answers = [](short events, int result) {
        return [events, result](pollfd* fds, nfds_t, int) {
            EXPECT_EQ(fds->fd, test::FakeImporter::fd);
            EXPECT_EQ(fds->events, POLLPRI);
            fds->revents = events;
            return result;
        };
    };
    EXPECT_CALL(system_, poll(_, 1, 0)).WillOnce(answers(0, 0));
    EXPECT_EQ(*source.any_revoked(), false);
    EXPECT_CALL(system_, poll(_, 1, testing::AllOf(testing::Gt(0), testing::Le(60'000))))
        .WillOnce(test::fails_with(EINTR))
        .WillOnce(answers(POLLPRI, 1));
    EXPECT_EQ(*source.any_revoked(std::chrono::seconds{60}), true);
    EXPECT_CALL(system_, poll(_, 1, 0)).WillOnce(answers(POLLNVAL, 1)).WillOnce(test::fails_with(ENOMEM));
    EXPECT_EQ(*source.any_revoked(), false);
    EXPECT_TRUE(source.any_revoked(std::chrono::milliseconds{-5}).error().is(ENOMEM));
    EXPECT_EQ(source.fd(), test::FakeImporter::fd);
}

} // namespace
} // namespace upcie::dmabuf
