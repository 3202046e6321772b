// SPDX-License-Identifier: BSD-3-Clause
// Threads, children, descriptors on their way, and ends of every kind.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "target_calls.hpp"
#include "traced_run.hpp"

namespace upcie::rm::test {
namespace {

using namespace std::chrono_literals;

class Processes : public testing::Test {
  protected:
    void SetUp() override {
        if (const auto reason = why_not_traceable(); !reason.empty()) {
            GTEST_SKIP() << reason;
        }
    }
    /// Until `holds`, for at most a while.
    template <class Condition>
    static bool until(Condition holds) {
        for (int i = 0; i < 20000 && !holds(); ++i) {
            std::this_thread::sleep_for(1ms);
        }
        return holds();
    }
    [[nodiscard]] std::size_t lines_of_trace() const {
        std::ifstream file{folder_.file("trace")};
        return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>{file}, {}, '\n'));
    }
    NodeFolder folder_;
};

std::uint32_t object_of(const IoctlRecord& record) {
    return target::get<std::uint32_t>(record.blocks.at(0).before.bytes.data(), 4);
}
std::uint32_t number_of(const IoctlRecord& record) {
    return target::get<std::uint32_t>(record.blocks.at(1).before.bytes.data(), 0);
}
std::vector<std::uint32_t> numbers_of(const TracedRun& run) {
    std::vector<std::uint32_t> numbers;
    for (const IoctlRecord* one : run.ioctls) {
        numbers.push_back(number_of(*one));
    }
    return numbers;
}

TEST_F(Processes, EightThreadsLoseNoCallAndNoneIsThereTwice) {
    const TracedRun run = run_traced(folder_, {"threads", "8", "1000"});
    ASSERT_EQ(run.status, 0);
    EXPECT_TRUE(run.trace.problems.empty());
    EXPECT_EQ(run.ioctls.size(), 8000U);
    std::map<std::uint32_t, std::uint32_t> next;
    std::map<std::uint32_t, std::int32_t> thread;
    for (const Record* record : run.ioctl_records) {
        const auto& ioctl = std::get<IoctlRecord>(record->body);
        EXPECT_EQ(number_of(ioctl), next[object_of(ioctl)]++); // each thread counts up
        const auto known = thread.emplace(object_of(ioctl), record->stamp.tid).first;
        EXPECT_EQ(known->second, record->stamp.tid);
    }
    EXPECT_EQ(next.size(), 8U);
    const auto births = std::ranges::count_if(run.trace.records, [](const Record& record) {
        const auto* birth = std::get_if<BirthRecord>(&record.body);
        return birth != nullptr && birth->how == "thread";
    });
    EXPECT_EQ(births, 8);
}

TEST_F(Processes, ChildrenOfForkAndVforkAreFollowedThroughExec) {
    const TracedRun run = run_traced(folder_, {"forks"});
    ASSERT_EQ(run.status, 0);
    EXPECT_EQ(numbers_of(run), (std::vector<std::uint32_t>{300, 310, 311, 312, 313, 320, 330}));
    std::vector<std::string> births;
    std::vector<std::size_t> held;
    std::size_t kept = 0;
    for (const Record& record : run.trace.records) {
        if (const auto* birth = std::get_if<BirthRecord>(&record.body)) {
            births.push_back(birth->how);
            held.push_back(birth->nodes.size());
        }
        if (const auto* exec = std::get_if<ExecRecord>(&record.body)) {
            kept = exec->nodes.size();
        }
    }
    EXPECT_EQ(births, (std::vector<std::string>{"start", "fork", "fork", "fork", "fork", "vfork"}));
    EXPECT_EQ(held, (std::vector<std::size_t>{0, 1, 1, 1, 1, 1}));
    EXPECT_EQ(kept, 1U); // the descriptor that was handed on
    EXPECT_NE(run.ioctl_records[1]->stamp.pid, run.ioctl_records[0]->stamp.pid);
    EXPECT_EQ(run.ioctl_records[6]->stamp.pid, run.ioctl_records[0]->stamp.pid);
}

TEST_F(Processes, ADescriptorThatComesOverASocketIsKnown) {
    const TracedRun run = run_traced(folder_, {"passes"});
    ASSERT_EQ(run.status, 0);
    std::vector<bool> received;
    for (const Record& record : run.trace.records) {
        if (const auto* pass = std::get_if<PassRecord>(&record.body)) {
            received.push_back(pass->received);
            EXPECT_EQ(pass->node.path, folder_.file("control"));
            EXPECT_EQ(pass->node.kind, Node::control);
        }
    }
    EXPECT_EQ(received, (std::vector<bool>{false, true}));
    EXPECT_EQ(numbers_of(run), (std::vector<std::uint32_t>{400}));
}

TEST_F(Processes, AKilledProgramLeavesAllOfItsCallsAndItsEnd) {
    const TracedRun run = run_traced(folder_, {"dies", "500"});
    EXPECT_EQ(run.status, 128 + SIGKILL);
    EXPECT_TRUE(run.trace.problems.empty());
    EXPECT_EQ(run.ioctls.size(), 500U);
    const bool told = std::ranges::any_of(run.trace.records, [](const Record& record) {
        const auto* exit = std::get_if<ExitRecord>(&record.body);
        return exit != nullptr && exit->by_signal && exit->status == SIGKILL && exit->process;
    });
    EXPECT_TRUE(told);
}

TEST_F(Processes, AKilledTracerLeavesAReadableTraceAndNoProgram) {
    Child tracer{traced_command(folder_, {}, {"threads", "2", "1000000"}, {})};
    ASSERT_TRUE(until([&] { return lines_of_trace() > 200; }));
    ::kill(tracer.pid(), SIGKILL);
    EXPECT_EQ(tracer.wait(), 128 + SIGKILL);
    TracedRun run;
    read_into(run, folder_);
    EXPECT_GT(run.ioctls.size(), 100U);
    EXPECT_LE(run.trace.problems.size(), 1U); // the last line at most
    const pid_t program = run.ioctl_records.front()->stamp.pid;
    EXPECT_TRUE(until([&] { return ::kill(program, 0) != 0; }));
}

TEST_F(Processes, TheExitStatusIsTheProgramsAndAMissingOneIsSaid) {
    const auto status = [&](std::vector<std::string> command) {
        command.insert(command.begin(), {UPCIE_TRACER, "--quiet", "-o", folder_.file("trace"), "--"});
        Child child{command};
        return child.wait();
    };
    EXPECT_EQ(status({"/bin/sh", "-c", "exit 41"}), 41);
    EXPECT_EQ(status({"/bin/sh", "-c", "kill -TERM $$"}), 128 + SIGTERM);
    EXPECT_EQ(status({"/no/such/program"}), 127);
    EXPECT_EQ(status({folder_.file("control")}), 126);
    Child full{{UPCIE_TRACER, "--quiet", "-o", "/dev/full", "--", "/bin/true"}};
    EXPECT_EQ(full.wait(), 125);
}

TEST_F(Processes, StopsOfTheGroupAndDeadlySignalsReachTheProgram) {
    Child tracer{traced_command(folder_, {}, {"stops"}, {})};
    EXPECT_EQ(tracer.line(), "ready");
    TracedRun run;
    ASSERT_TRUE(until([&] { return lines_of_trace() >= 3; }));
    read_into(run, folder_);
    const pid_t program = run.trace.records.front().stamp.pid;
    const auto state = [&] {
        std::ifstream file{"/proc/" + std::to_string(program) + "/stat"};
        std::string word;
        file >> word >> word >> word;
        return word;
    };
    EXPECT_TRUE(until([&] { return state() == "t" || state() == "T"; }));
    std::this_thread::sleep_for(50ms);
    read_into(run, folder_);
    EXPECT_TRUE(run.ioctls.empty()); // it really is stopped
    ::kill(program, SIGCONT);
    EXPECT_EQ(tracer.wait(), 128 + SIGTERM);
    read_into(run, folder_);
    EXPECT_EQ(numbers_of(run), (std::vector<std::uint32_t>{500}));
}

TEST_F(Processes, SignalsToTheTracerArePassedOn) {
    Child tracer{traced_command(folder_, {}, {"waits", "3"}, {})};
    EXPECT_EQ(tracer.line(), "ready");
    ::kill(tracer.pid(), SIGTERM);
    EXPECT_EQ(tracer.wait(), 128 + SIGTERM);
}

TEST_F(Processes, AnAttachedTracerSeesWhatFollowsAndLetsGo) {
    Child program{{UPCIE_TARGET, folder_.file("control"), folder_.file("gpu"), folder_.file("uvm"), "waits", "50"}};
    ASSERT_EQ(program.line(), "ready");
    Child tracer{{UPCIE_TRACER, "--quiet", "--driver", "550.163.01", "-o", folder_.file("trace"), "--node",
                  folder_.file("control") + "=control", "-p", std::to_string(program.pid())}};
    ASSERT_TRUE(until([&] { return lines_of_trace() >= 3; })); // header, two threads
    ::kill(program.pid(), SIGUSR1);
    EXPECT_EQ(program.line(), "done");
    ::kill(tracer.pid(), SIGINT);
    EXPECT_EQ(tracer.wait(), 0);
    TracedRun run;
    read_into(run, folder_);
    EXPECT_EQ(run.ioctls.size(), 50U);
    const auto* birth = std::get_if<BirthRecord>(&run.trace.records.front().body);
    ASSERT_NE(birth, nullptr);
    EXPECT_EQ(birth->how, "attach");
    EXPECT_EQ(birth->nodes.size(), 1U); // open before the tracer came
    EXPECT_FALSE(program.ended());
    ::kill(program.pid(), SIGUSR1);
    EXPECT_EQ(program.wait(), 17); // it lives on as if nothing had been
}

TEST_F(Processes, AnAttachedTracerInAScriptsBackgroundLetsGoAllTheSame) {
    for (const int number : {SIGINT, SIGQUIT, SIGTERM}) {
        Child program{{UPCIE_TARGET, folder_.file("control"), folder_.file("gpu"), folder_.file("uvm"), "waits", "5"}};
        ASSERT_EQ(program.line(), "ready");
        // What is ignored is so beyond an exec.
        Child tracer{{"/bin/sh", "-c", "trap '' INT QUIT TERM HUP; exec \"$@\"", "sh", UPCIE_TRACER, "--quiet", "-o",
                      folder_.file("trace"), "-p", std::to_string(program.pid())}};
        ASSERT_TRUE(until([&] { return lines_of_trace() >= 3; })); // header, two threads
        ::kill(tracer.pid(), SIGHUP);
        std::this_thread::sleep_for(20ms);
        EXPECT_FALSE(tracer.ended()); // nohup stays in force
        ::kill(tracer.pid(), number);
        EXPECT_TRUE(until([&] { return tracer.ended(); })) << number;
        EXPECT_EQ(tracer.wait(), 0) << number;
        ::kill(program.pid(), SIGUSR1);
        EXPECT_EQ(program.line(), "done");
        ::kill(program.pid(), SIGUSR1);
        EXPECT_EQ(program.wait(), 17);
        std::remove(folder_.file("trace").c_str());
    }
}

TEST_F(Processes, WhyATraceIsNotWholeSaysWhatToDo) {
    const auto said = [&](const std::string& command) {
        Child shell{{"/bin/sh", "-c", command, "sh", UPCIE_TRACER, folder_.file("trace")}};
        std::string all;
        for (std::string line = shell.line(); !line.empty(); line = shell.line()) {
            all += line + "\n";
        }
        EXPECT_EQ(shell.wait(), 0);
        return all;
    };
    const std::string gone = said("exec 3>&1; \"$1\" -q -o /dev/stdout -- /bin/sleep 2 2>&3 | head -n 1 >/dev/null");
    EXPECT_NE(gone.find("EPIPE"), std::string::npos) << gone;
    EXPECT_NE(gone.find("what read the pipe has gone"), std::string::npos) << gone;
    EXPECT_EQ(gone.find("make room"), std::string::npos) << gone;
    const std::string full = said("\"$1\" -q -o /dev/full -- /bin/true 2>&1 || true");
    EXPECT_NE(full.find("ENOSPC"), std::string::npos) << full;
    EXPECT_NE(full.find("make room"), std::string::npos) << full;
    const std::string large = said("ulimit -f 0; \"$1\" -q -o \"$2\" -- /bin/true 2>&1 || true");
    EXPECT_NE(large.find("EFBIG"), std::string::npos) << large;
    EXPECT_NE(large.find("make room"), std::string::npos) << large;
}

TEST_F(Processes, AProcessNumberThatIsNoneIsWrongUsageInFewWords) {
    for (const char* number : {"0", "-1", "2147483648", "x"}) {
        Child shell{{"/bin/sh", "-c", "\"$1\" -p \"$2\" 2>&1", "sh", UPCIE_TRACER, number}};
        std::string all;
        for (std::string line = shell.line(); !line.empty(); line = shell.line()) {
            all += line + "\n";
        }
        EXPECT_EQ(shell.wait(), 2) << number;
        EXPECT_LT(all.size(), 200U) << all;
    }
}

TEST_F(Processes, ACallThatASignalStartsOverIsOneCall) {
    Manner manner;
    manner.every_call = true;
    manner.supervised = true;
    const TracedRun again = run_traced(folder_, {"interrupted", "1"}, manner);
    if (again.status == 98) {
        GTEST_SKIP() << "seccomp's user notification is not allowed here";
    }
    ASSERT_EQ(again.status, 0);
    EXPECT_EQ(numbers_of(again), (std::vector<std::uint32_t>{600, 601}));
    EXPECT_EQ(again.ioctls[0]->restarts, 1U);
    EXPECT_TRUE(again.ioctls[0]->outcome.succeeded());
    const TracedRun ended = run_traced(folder_, {"interrupted", "0"}, manner);
    ASSERT_EQ(ended.status, 0);
    EXPECT_EQ(numbers_of(ended), (std::vector<std::uint32_t>{600, 601}));
    EXPECT_EQ(ended.ioctls[0]->outcome.kind, Outcome::Kind::interrupted);
    EXPECT_EQ(ended.ioctls[0]->restarts, 0U);
}

TEST_F(Processes, SeveralRunsShareAFile) {
    Manner manner;
    manner.more = {"--append"};
    Child first{traced_command(folder_, {}, {"threads", "2", "300"}, manner)};
    Child second{traced_command(folder_, {}, {"threads", "2", "300"}, manner)};
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
    TracedRun run;
    read_into(run, folder_);
    EXPECT_EQ(run.trace.headers.size(), 2U);
    EXPECT_TRUE(run.trace.problems.empty());
    EXPECT_EQ(run.ioctls.size(), 1200U);
}

} // namespace
} // namespace upcie::rm::test
