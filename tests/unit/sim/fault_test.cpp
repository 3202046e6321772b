// SPDX-License-Identifier: BSD-3-Clause
#include "sim/raw_driver.hpp"

namespace upcie::sim::test {
namespace {

/// Each fault as the host sees it, on a controller that is stepped.
class Faults : public ::testing::Test {
  protected:
    Faults() : driver{"sim:size=16M,thread=off"} {
        EXPECT_TRUE(driver.enable());
        rings = driver.queue(1, 8);
        data = std::make_unique<Memory>(*driver.controller->address_space(), 4096);
        std::vector<std::byte> blocks(64 * 512);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            blocks[i] = static_cast<std::byte>(i / 512); // block n holds n
        }
        EXPECT_TRUE(driver.controller->write_medium(Nsid{1}, Lba{0}, blocks));
    }
    ~Faults() override { EXPECT_EQ(driver.violations(), ""); }

    void script(const char* text) {
        const auto parsed = FaultScript::parse(text);
        ASSERT_TRUE(parsed) << parsed.error().message();
        driver.controller->set_faults(*parsed);
    }
    void submit_read(std::uint16_t cid, std::uint64_t lba) {
        nvme::Command command = RawDriver::io(2, lba, 1, data->address());
        command.cid = cid;
        driver.submit(*rings, command);
        driver.controller->step();
    }
    [[nodiscard]] int next_cid() {
        const auto entry = driver.next(*rings);
        return entry ? entry->cid : -1;
    }

    RawDriver driver;
    std::unique_ptr<Rings> rings;
    std::unique_ptr<Memory> data;
};

TEST_F(Faults, LateByCompletionsMovesItsDataLate) {
    script("late:2@op=read&nth=1");
    *data->as() = 0xee;
    nvme::Command command = RawDriver::io(2, 7, 1, data->address());
    command.cid = 1;
    driver.submit(*rings, command);
    driver.controller->step();
    EXPECT_EQ(*data->as(), 0xee);
    nvme::Command flush;
    flush.nsid = 1;
    for (std::uint16_t cid = 2; cid <= 3; ++cid) {
        flush.cid = cid;
        driver.submit(*rings, flush);
        EXPECT_EQ(next_cid(), cid);
    }
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(*data->as(), 7);
    EXPECT_EQ(driver.controller->fault_hits(), std::vector<std::uint64_t>{1});
}

TEST_F(Faults, LateByTime) {
    script("late:50ms@qid=1");
    submit_read(1, 0);
    driver.controller->advance(std::chrono::milliseconds{30});
    EXPECT_EQ(next_cid(), -1);
    driver.controller->advance(std::chrono::milliseconds{30});
    EXPECT_EQ(next_cid(), 1);
}

TEST_F(Faults, SlowAdminLeavesIoAlone) {
    script("late:50ms@admin");
    nvme::Command features;
    features.opcode = 0x0a;
    features.cdw10 = 7;
    features.cid = 5;
    driver.submit(*driver.admin, features);
    submit_read(1, 0);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_FALSE(driver.next(*driver.admin));
    driver.controller->advance(std::chrono::milliseconds{60});
    EXPECT_TRUE(driver.next(*driver.admin));
}

TEST_F(Faults, ReorderedMovesItsDataAtOnce) {
    script("reorder:2@io&nth=1");
    submit_read(1, 9);
    EXPECT_EQ(*data->as(), 9);
    submit_read(2, 1);
    submit_read(3, 2);
    EXPECT_EQ(next_cid(), 2);
    EXPECT_EQ(next_cid(), 3);
    EXPECT_EQ(next_cid(), 1);
}

TEST_F(Faults, LostNeverComes) {
    script("lost@io&nth=2");
    submit_read(1, 0);
    submit_read(2, 1);
    submit_read(3, 2);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(next_cid(), 3);
    EXPECT_EQ(next_cid(), -1);
}

TEST_F(Faults, DuplicateComesTwice) {
    script("duplicate@io&once");
    submit_read(1, 0);
    submit_read(2, 0);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(next_cid(), 2);
    EXPECT_EQ(next_cid(), -1);
}

TEST_F(Faults, ErrorCompletesWithoutDoingIt) {
    script("error:2:0x81:dnr@lba=10..19");
    *data->as() = 0xee;
    const Entry hit = driver.run(*rings, RawDriver::io(2, 8, 4, data->address())); // touches 10
    EXPECT_EQ(hit.code(), 0x281U);
    EXPECT_EQ(hit.status >> 14, 1U);
    EXPECT_EQ(*data->as(), 0xee);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 20, 1, data->address())).code(), 0U);
}

TEST_F(Faults, WrongPhaseHidesAllThatFollows) {
    script("phase@io&nth=2");
    submit_read(1, 0);
    submit_read(2, 0);
    submit_read(3, 0);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(next_cid(), -1);
    EXPECT_EQ(driver.controller->counters().completions, 2U + 3U);
}

TEST_F(Faults, BadCidInPlaceOfItsOwn) {
    script("bad-cid@io&nth=1;bad-cid:77@io&nth=2");
    submit_read(1, 0);
    const int wrong = next_cid();
    EXPECT_NE(wrong, -1);
    EXPECT_NE(wrong, 1);
    EXPECT_EQ(next_cid(), -1);
    submit_read(2, 0);
    EXPECT_EQ(next_cid(), 77);
}

TEST_F(Faults, StrayBesideItsOwn) {
    script("stray:77@io");
    submit_read(1, 0);
    EXPECT_EQ(next_cid(), 77);
    EXPECT_EQ(next_cid(), 1);
}

TEST_F(Faults, WrongSubmissionQueue) {
    script("bad-sqid@io");
    submit_read(1, 0);
    const auto entry = driver.next(*rings);
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->sqid, 2);
}

TEST_F(Faults, MisplacedReadsAndWrites) {
    script("misplaced:3@io");
    driver.run(*rings, RawDriver::io(2, 5, 1, data->address()));
    EXPECT_EQ(*data->as(), 8);
    driver.run(*rings, RawDriver::io(2, 32767, 1, data->address())); // the last block: backwards
    EXPECT_EQ(*data->as(), 0);
    std::memset(data->as(), 0xcc, 512);
    driver.run(*rings, RawDriver::io(1, 20, 1, data->address()));
    std::vector<std::byte> block(512);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{20}, block));
    EXPECT_EQ(block[0], std::byte{20});
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{23}, block));
    EXPECT_EQ(block[0], std::byte{0xcc});
}

TEST_F(Faults, CorruptInvertsOneByte) {
    script("corrupt:100@io");
    driver.run(*rings, RawDriver::io(2, 5, 1, data->address()));
    EXPECT_EQ(data->as()[99], 5);
    EXPECT_EQ(data->as()[100], 5 ^ 0xff);
    EXPECT_EQ(data->as()[101], 5);
    std::memset(data->as(), 0x11, 512);
    driver.run(*rings, RawDriver::io(1, 6, 1, data->address()));
    std::vector<std::byte> block(512);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{6}, block));
    EXPECT_EQ(block[99], std::byte{0x11});
    EXPECT_EQ(block[100], std::byte{0x11 ^ 0xff});
    EXPECT_EQ(data->as()[100], 0x11); // the host's copy of a write stays as it was
}

TEST_F(Faults, DroppedSucceedsWithoutMoving) {
    script("dropped@io");
    *data->as() = 0xee;
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 5, 1, data->address())).code(), 0U);
    EXPECT_EQ(*data->as(), 0xee);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(1, 5, 1, data->address())).code(), 0U);
    std::vector<std::byte> block(512);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{5}, block));
    EXPECT_EQ(block[0], std::byte{5});
}

TEST_F(Faults, FatalStopsUntilDisabled) {
    script("cfs@io&nth=2");
    submit_read(1, 0);
    submit_read(2, 0);
    EXPECT_EQ(next_cid(), 1);
    EXPECT_EQ(driver.read(0x1c) & 2, 2U);
    EXPECT_EQ(next_cid(), -1);
    ASSERT_TRUE(driver.disable());
    EXPECT_EQ(driver.read(0x1c), 0U);
    EXPECT_TRUE(driver.enable());
}

TEST_F(Faults, GoneReadsAsOnes) {
    script("gone@io");
    submit_read(1, 0);
    EXPECT_EQ(next_cid(), -1);
    EXPECT_EQ(driver.read<std::uint64_t>(0), ~std::uint64_t{0});
    EXPECT_EQ(driver.read(0x1c), ~0U);
    driver.write<std::uint32_t>(0x14, 0);
    driver.controller->step();
    ASSERT_TRUE(driver.function->reset());
    EXPECT_EQ(driver.read(0x1c), ~0U);
}

TEST_F(Faults, StuckTransitions) {
    script("never-idle;never-ready@nth=1;never-shut");
    EXPECT_FALSE(driver.disable());
    EXPECT_EQ(driver.read(0x1c) & 1, 1U);
    script("never-ready@once;never-shut");
    ASSERT_TRUE(driver.function->reset());
    EXPECT_FALSE(driver.enable());
    ASSERT_TRUE(driver.disable());
    EXPECT_TRUE(driver.enable());
    driver.write<std::uint32_t>(0x14, driver.read(0x14) | 1U << 14);
    driver.controller->step();
    EXPECT_EQ((driver.read(0x1c) >> 2) & 3, 1U);
}

TEST_F(Faults, EventsForFatalAndGone) {
    ASSERT_TRUE(driver.disable());
    script("cfs@on=enable&once");
    EXPECT_FALSE(driver.enable());
    EXPECT_EQ(driver.read(0x1c), 2U);
    ASSERT_TRUE(driver.disable());
    EXPECT_TRUE(driver.enable());
    script("gone@on=disable");
    driver.write<std::uint32_t>(0x14, 0);
    driver.controller->step();
    EXPECT_EQ(driver.read(0x1c), ~0U);
}

TEST_F(Faults, EveryAndTimes) {
    script("error:0:6@io&every=3&times=2");
    std::string seen;
    for (int i = 0; i < 12; ++i) {
        seen += driver.run(*rings, RawDriver::io(2, 0, 1, data->address())).code() == 6 ? 'x' : '.';
    }
    EXPECT_EQ(seen, "..x..x......");
    EXPECT_EQ(driver.controller->fault_hits(), std::vector<std::uint64_t>{2});
}

TEST_F(Faults, HeldCommandsEndWithTheirQueueOrByAbort) {
    script("late:1000@op=read");
    submit_read(1, 0);
    submit_read(2, 0);
    nvme::Command abort;
    abort.opcode = 0x08;
    abort.cdw10 = 1 | 2U << 16;
    EXPECT_EQ(driver.admin_run(abort).dword0, 0U);
    auto entry = driver.next(*rings);
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->cid, 2);
    EXPECT_EQ(entry->code(), 0x007U);
    EXPECT_EQ(driver.admin_run(abort).dword0, 1U); // not there any more
    nvme::Command erase;
    erase.opcode = 0x00;
    erase.cdw10 = 1;
    EXPECT_EQ(driver.admin_run(erase).code(), 0U);
    entry = driver.next(*rings);
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->cid, 1);
    EXPECT_EQ(entry->code(), 0x008U);
}

TEST(FaultScript, RefusesWhatItDoesNotKnow) {
    for (const char* text :
         {"burst",       "late",          "late:0",         "late:x",        "late:5s",        "error",
          "error:2",     "error:0:0",     "error:8:1",      "error:1:300",   "lost:1",         "lost@",
          "lost@qid",    "lost@nth=0",    "lost@qid=70000", "lost@lba=5..4", "lost@on=enable", "cfs@on=never",
          "lost@op=fly", "bad-cid:65536", "lost;;late:1",   "@once",         "lost@often=3"}) {
        const auto script = FaultScript::parse(text);
        EXPECT_TRUE(text == std::string{"lost@"} ? script.has_value() : !script.has_value()) << text;
        if (!script) {
            EXPECT_TRUE(script.error().is(EINVAL));
            EXPECT_FALSE(script.error().hint.empty());
        }
    }
    EXPECT_TRUE(FaultScript::parse("")->empty());
    EXPECT_EQ(FaultScript::parse("late:50ms@admin&nth=4;cfs@nth=1000")->rules().size(), 2U);
}

} // namespace
} // namespace upcie::sim::test
