// SPDX-License-Identifier: BSD-3-Clause
// Which capability suffices, over processes that are answered as told; and how a process becomes another.
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/socket.h>

#include "child.hpp"
#include "gpu/vfio_share_gpu.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using testing::_;
using testing::HasSubstr;

constexpr std::chrono::milliseconds trial_patience{5000};
constexpr std::uint32_t other_user = 65534;

/// A kernel of four capabilities (chown, dac_override, dac_read_search, fowner), and secondaries that say who they are
/// and what their runtime answered.
class WhichCapability : public testing::Test {
  protected:
    void SetUp() override {
        write("last", "3\n");
        permit(0xf | std::uint64_t{1} << CAP_SETUID | std::uint64_t{1} << CAP_SETGID);
        redirect("/proc/sys/kernel/cap_last_cap", "last");
        redirect("/proc/self/status", "status");
    }
    void TearDown() override {
        for (std::thread& one : threads_) {
            one.join();
        }
    }
    void permit(std::uint64_t mask) { write("status", fmt_status(mask)); }
    static std::string fmt_status(std::uint64_t mask) {
        const std::string text = hex(mask).substr(2);
        return "Name:\tprobe\nPid:\t77\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0\nVmPin:\t0 kB\nVmLck:\t0 kB\n"
               "CapPrm:\t" +
               text + "\nCapEff:\t" + text + "\nCapBnd:\t" + text + "\n";
    }
    void write(const char* name, const std::string& text) { std::ofstream{folder_.file(name)} << text; }
    void redirect(const char* path, const char* name) {
        ON_CALL(system_, open(testing::StrEq(path), _, _)).WillByDefault([this, name](const char*, int flags, mode_t) {
            return os::real_system().open(folder_.file(name).c_str(), flags);
        });
    }

    /// One secondary: says hello as `who`, and that registering was answered with `outcome` ("": it could not ask).
    Result<Channel> secondary(Identity who, const std::string& outcome) {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        os::System& real = os::real_system();
        threads_.emplace_back([this, who, outcome, end = ends[1], &real] {
            Channel channel{real, os::Fd{real, end}, trial_patience};
            EXPECT_TRUE(channel.send("hello", who.json()));
            EXPECT_TRUE(channel.expect("hello"));
            EXPECT_TRUE(channel.expect("page"));
            if (outcome.empty()) {
                EXPECT_TRUE(channel.send("failed", {{"operation", "cuInit"}, {"message", "no device node"}}));
                return;
            }
            Report seen{"vfio_share_gpu_stub", "?", "secondary"};
            seen.control("", "control.ordinary_memory_is_reachable", reaches_, reaches_, "");
            seen.observe("ordinary.registration_as_iomemory", outcome, "outcome");
            EXPECT_TRUE(channel.send("looked", {{"findings", seen.share_findings()},
                                                {"flavour", gpu_flavour().name},
                                                {"gpu", {{"runtime", "told"}}}}));
        });
        return Channel{real, os::Fd{real, ends[0]}, trial_patience};
    }
    /// `outcomes` by mask for the other user; what has none is refused. This user is answered `self`.
    Result<void> ask(const std::map<std::uint64_t, std::string>& outcomes, const std::string& self = "ok") {
        const StartSecondary start = [&](const std::optional<Appearance>& appearance) -> Result<Channel> {
            Identity who;
            if (!appearance) {
                return secondary(who, self);
            }
            who.effective_uid = pretends_ ? 0 : appearance->uid;
            who.effective_capabilities = appearance->capabilities;
            const auto place = outcomes.find(appearance->capabilities);
            return secondary(who, place == outcomes.end() ? "CUDA_ERROR_NOT_PERMITTED" : place->second);
        };
        return ask_which_capability(report_, Requests{system_}, nullptr, {other_user, only_}, start);
    }
    Answer answer() {
        const std::vector<Answer> all = report_.judged();
        EXPECT_EQ(all.size(), 1U);
        return all.empty() ? Answer{} : all.front();
    }

    ScratchFolder folder_ = ScratchFolder::make().value();
    test::MockSystem system_;
    Report report_{"vfio_share_gpu_stub", vfio_share_gpu_question};
    std::vector<std::thread> threads_;
    bool reaches_ = true;
    bool pretends_ = false;
    std::vector<std::string> only_;
};

TEST_F(WhichCapability, ThoseThatSufficeAreListed) {
    ASSERT_TRUE(ask({{0b0010, "ok"}, {0b1000, "ok"}, {0b1111, "ok"}}));
    EXPECT_EQ(answer().answer, "dac_override,fowner");
    EXPECT_TRUE(answer().conclusive);
    EXPECT_EQ(report_.find("capability.fowner.registration")->value, "ok");
    EXPECT_EQ(report_.find("capability.chown.registration")->value, "CUDA_ERROR_NOT_PERMITTED");
    EXPECT_THAT(report_.find("capability.fowner.registration")->note,
                HasSubstr("uid 65534, effective capabilities 0x8"));
    const Value json = report_.json();
    for (const char* process : {"primary", "self", "none", "all"}) {
        EXPECT_TRUE(json["processes"].contains(process)) << process;
    }
    EXPECT_EQ(json["processes"]["all"]["capabilities"]["effective"], "0xf");
    EXPECT_EQ(json["device"]["runtime"], "told");
}

TEST_F(WhichCapability, NoneAloneSaysWhetherAllTogetherDo) {
    ASSERT_TRUE(ask({}));
    EXPECT_EQ(answer().answer, "none_alone");
    EXPECT_THAT(answer().sentence, HasSubstr("being root counts"));
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({{0b1111, "ok"}}));
    EXPECT_EQ(answer().answer, "none_alone");
    EXPECT_THAT(answer().sentence, HasSubstr("all together suffice"));
}

TEST_F(WhichCapability, WhereNothingIsAskedForItIsSaid) {
    std::map<std::uint64_t, std::string> outcomes;
    for (std::uint64_t mask = 0; mask < 16; ++mask) {
        outcomes[mask] = "ok";
    }
    ASSERT_TRUE(ask(outcomes));
    EXPECT_EQ(answer().answer, "not_needed");
}

// Ordinary memory may be refused to root too: another refusal than the one for lack of privilege still tells.
TEST_F(WhichCapability, WhatCountsIsBeingAnsweredAsThisUserIs) {
    ASSERT_TRUE(ask({{0b0001, "CUDA_ERROR_INVALID_VALUE"}}, "CUDA_ERROR_INVALID_VALUE"));
    EXPECT_EQ(answer().answer, "chown");
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({}, "CUDA_ERROR_NOT_PERMITTED"));
    EXPECT_EQ(answer().answer, "inconclusive") << "all are refused in the same words";
    EXPECT_THAT(answer().failed_controls, testing::ElementsAre("control.privilege_makes_a_difference"));
}

TEST_F(WhichCapability, ACapabilityThatCouldNotBeTriedIsNamed) {
    permit(0b0111 | std::uint64_t{1} << CAP_SETUID | std::uint64_t{1} << CAP_SETGID);
    ASSERT_TRUE(ask({{0b0001, ""}}));
    EXPECT_EQ(answer().answer, "inconclusive");
    EXPECT_THAT(answer().failed_controls, testing::ElementsAre("control.each_capability_was_tried"));
    EXPECT_EQ(report_.find("control.each_capability_was_tried")->value, (Value{"chown", "fowner"}));
    EXPECT_THAT(report_.find("capability.chown.registration")->note, HasSubstr("no device node"));
    EXPECT_THAT(answer().sentence, HasSubstr("not tried: chown,fowner"));
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({{0b0100, "ok"}}));
    EXPECT_EQ(answer().answer, "dac_read_search") << "what was found stays found";
    EXPECT_TRUE(answer().conclusive);
    EXPECT_THAT(answer().sentence, HasSubstr("any one of those tried: dac_read_search; not tried: fowner"));
    for (const Observation& control : report_.controls()) {
        EXPECT_TRUE(control.held.value_or(false)) << control.name;
        EXPECT_NE(control.name, "control.each_capability_was_tried") << "it was not, and does not have to";
    }
}

// Every answer, by what this process has to give: only one of them is about what was not tried.
TEST_F(WhichCapability, WhatWasNotTriedMattersOnlyWhereNoneSufficed) {
    const std::uint64_t change = std::uint64_t{1} << CAP_SETUID | std::uint64_t{1} << CAP_SETGID;
    const std::string refused = "CUDA_ERROR_NOT_PERMITTED";
    struct Case {
        const char* answer; ///< where every control held
        std::string self;
        std::string none;
        std::string chown;
        bool needs_all;
        bool always_failed; ///< the control that privilege makes a difference
    };
    for (const Case& one :
         {Case{"not_needed", "ok", "ok", "ok", false, false}, Case{"chown", "ok", refused, "ok", false, false},
          Case{"none_alone", "ok", refused, refused, true, false},
          Case{"refused_alike", refused, refused, refused, false, true}}) {
        for (const std::uint64_t own : {0b1111U, 0b0111U, 0b0001U}) {
            SCOPED_TRACE(std::string{one.answer} + " with " + hex(own));
            permit(own | change);
            report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
            ASSERT_TRUE(ask({{0, one.none}, {1, one.chown}, {own, "ok"}}, one.self));
            std::vector<std::string> failed;
            if (one.always_failed) {
                failed.emplace_back("control.privilege_makes_a_difference");
            }
            if (one.needs_all && own != 0b1111) {
                failed.emplace_back("control.each_capability_was_tried");
            }
            EXPECT_EQ(answer().failed_controls, failed);
            EXPECT_EQ(answer().answer, failed.empty() ? one.answer : "inconclusive");
            EXPECT_EQ(report_.find("capability.fowner.registration")->value.is_null(), own != 0b1111);
        }
    }
}

TEST_F(WhichCapability, OnlyThoseThatAreAskedForAreTried) {
    only_ = {"fowner"};
    ASSERT_TRUE(ask({{0b0001, "ok"}, {0b1111, "ok"}}));
    EXPECT_EQ(threads_.size(), 4U) << "this user, none, fowner, all";
    EXPECT_EQ(answer().answer, "inconclusive") << "chown would do, and was not tried";
    EXPECT_EQ(report_.find("capability.chown.registration")->value, nullptr);
    EXPECT_EQ(report_.find("capability.all.registration")->value, "ok");
    EXPECT_THAT(answer().sentence, HasSubstr("others were not asked for"));
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({{0b1000, "ok"}, {0b1111, "ok"}}));
    EXPECT_EQ(answer().answer, "fowner");
    EXPECT_THAT(answer().sentence, HasSubstr("any one of those tried: fowner; the others were not asked for"));
    only_ = {"chown", "fowner"};
    permit(0b1110 | std::uint64_t{1} << CAP_SETUID | std::uint64_t{1} << CAP_SETGID);
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({{0b1000, "ok"}}));
    EXPECT_THAT(answer().sentence, HasSubstr("tried: fowner; not tried: chown; the others were not asked for;"));
}

TEST_F(WhichCapability, FailedControlsMakeItInconclusive) {
    reaches_ = false;
    ASSERT_TRUE(ask({{0b0001, "ok"}}));
    EXPECT_THAT(answer().failed_controls, testing::ElementsAre("control.ordinary_memory_is_reachable"));
    reaches_ = true;
    pretends_ = true; // they say that they are root still
    report_ = Report{"vfio_share_gpu_stub", vfio_share_gpu_question};
    ASSERT_TRUE(ask({{0b0001, "ok"}}));
    EXPECT_EQ(answer().answer, "inconclusive");
    EXPECT_THAT(answer().failed_controls, testing::ElementsAre("control.processes_became_what_was_meant"));
}

TEST_F(WhichCapability, WhatCannotBeAskedIsAnError) {
    const Result<void> no_gpu = ask({}, "");
    ASSERT_FALSE(no_gpu);
    EXPECT_TRUE(no_gpu.error().is(ENODEV));
    EXPECT_THAT(no_gpu.error().hint, HasSubstr("no device node"));
    permit(0xf);
    const Result<void> not_root = ask({});
    ASSERT_FALSE(not_root);
    EXPECT_TRUE(not_root.error().is(EPERM));
    const StartSecondary never = [](const std::optional<Appearance>&) -> Result<Channel> {
        return fail(ECHILD, "starting a process", "of this user", "It ended.");
    };
    permit(0xf | std::uint64_t{1} << CAP_SETUID | std::uint64_t{1} << CAP_SETGID);
    EXPECT_TRUE(ask_which_capability(report_, Requests{system_}, nullptr, {other_user, {}}, never).error().is(ECHILD));
    write("last", "4711\n");
    EXPECT_TRUE(ask({}).error().is(EPROTO));
}

TEST(Capabilities, HaveTheirNames) {
    EXPECT_EQ(capability_name(CAP_SYS_RAWIO), "sys_rawio");
    EXPECT_EQ(capability_name(CAP_CHOWN), "chown");
    EXPECT_EQ(capability_name(63), "capability_63");
    EXPECT_TRUE(is_capability_name("sys_rawio") && is_capability_name("capability_63"));
    EXPECT_FALSE(is_capability_name("CAP_SYS_RAWIO") || is_capability_name(""));
    const Result<unsigned> last = last_capability(os::real_system());
    ASSERT_TRUE(last);
    EXPECT_GE(*last, unsigned{CAP_AUDIT_READ});
    EXPECT_LT(*last, 64U);
}

/// become_if_told() of these words; the rest of what it does takes root, and is seen in the VM.
std::optional<int> told(std::vector<std::string> words) {
    words.insert(words.begin(), "probe");
    std::vector<char*> pointers;
    for (std::string& word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    return become_if_told(static_cast<int>(words.size()), pointers.data());
}

TEST(Capabilities, OtherCommandLinesAreLeftAlone) {
    EXPECT_EQ(arguments_to_become({65534, 0x4000}, {"secondary", "--json"}),
              (std::vector<std::string>{"become", "65534", "4000", "secondary", "--json"}));
    EXPECT_EQ(told({}), std::nullopt);
    EXPECT_EQ(told({"standalone", "--memory", "--json", "--try-capabilities"}), std::nullopt);
    EXPECT_EQ(told({"become", "1"}), std::nullopt);
    EXPECT_EQ(told({"become", "-1", "0", "secondary"}), std::optional<int>{2});
    EXPECT_EQ(told({"become", "65534", "0x4000", "secondary"}), std::optional<int>{2});
}

} // namespace
} // namespace upcie::probes
