// SPDX-License-Identifier: BSD-3-Clause
// What the kernel module makes of much and odd use, and what is left behind after it.
//   dmabuf_import_endurance fuzz BDF COUNT SEED   random requests by four threads that share what they open
//   dmabuf_import_endurance rounds BDF COUNT      nothing is left behind
//   dmabuf_import_endurance kill BDF              nor by a killed process
//   dmabuf_import_endurance hold BDF              imports, says so, and waits to be killed
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "dmabuf_layout.hpp"

using namespace upcie;
using namespace upcie::test;
using dmabuf::Importer;

namespace {

// ---- random requests

/// Structures of values that are mostly nearly right, and sometimes anything.
struct Fuzzer {
    int node;
    std::vector<int> buffers;
    Import good;
    std::mt19937_64 random;
    std::vector<Segment> room{std::vector<Segment>(512)};
    std::array<std::uint64_t, 4> accepted{};
    static inline std::array<std::atomic<std::uint32_t>, 64> recent{};

    std::uint64_t often(std::uint64_t usual) {
        const std::uint64_t odd[]{0, 1, random() % 64, ~std::uint64_t{0}, std::uint64_t{1} << 31, random()};
        return random() % 8 != 0 ? usual : odd[random() % 6];
    }
    std::uint32_t few(std::uint64_t usual) { return static_cast<std::uint32_t>(often(usual)); }
    /// Mostly one that some thread was given lately.
    std::uint32_t handle() { return few(recent[random() % recent.size()]); }

    void one() {
        const auto which = random() % 4;
        int result = -1;
        switch (which) {
        case 0: {
            Import request = good;
            request.fd = static_cast<int>(few(static_cast<std::uint64_t>(buffers[random() % buffers.size()])));
            if (request.fd == node && random() % 2 == 0) {
                request.fd = -1;
            }
            request.flags = few(0);
            request.domain = few(request.domain);
            request.bus = few(request.bus);
            request.device = few(request.device);
            request.function = few(request.function);
            request.reserved = few(0);
            result = ::ioctl(node, uapi::dmabuf_import_import, random() % 32 == 0 ? nullptr : &request);
            if (result == 0) {
                recent[random() % recent.size()] = request.handle;
            }
            break;
        }
        case 1: {
            Segments request{handle(),
                             few(0),
                             often(random() % 40),
                             often(reinterpret_cast<std::uintptr_t>(room.data())),
                             often(random() % room.size()),
                             0,
                             0};
            // Never an array that ends in this program's other memory.
            if (request.entries == reinterpret_cast<std::uintptr_t>(room.data())) {
                request.capacity = std::min<std::uint64_t>(request.capacity, room.size());
            } else if (random() % 2 == 0 || request.entries > page) {
                request.entries = 0;
            }
            result = ::ioctl(node, uapi::dmabuf_import_segments, &request);
            break;
        }
        case 2: {
            Release request{handle(), few(0)};
            result = ::ioctl(node, uapi::dmabuf_import_release, &request);
            break;
        }
        default: {
            std::array<std::uint64_t, 64> anything{};
            for (auto& word : anything) {
                word = often(0);
            }
            // Any size and direction of this type's numbers; 512 bytes are enough for those that there are.
            const std::uint64_t request = (random() & 0xffff00ff) | 0xbc00;
            result =
                ::ioctl(node,
                        often(uapi::dmabuf_import_version) == uapi::dmabuf_import_version ? uapi::dmabuf_import_version
                                                                                          : request,
                        anything.data());
            break;
        }
        }
        accepted[which] += result == 0 ? 1U : 0U;
    }
};

void check_fuzz(const std::string& bdf, std::uint64_t count, std::uint64_t seed) {
    const Memory memory{64};
    const Layout small{memory, {{0, 4}}};
    const Layout pieces{memory, {{1, 20}, {40, 20}, {0, 1}}};
    const int node = open_node();
    std::array<std::uint64_t, 4> accepted{};
    std::vector<Fuzzer> fuzzers;
    for (std::uint64_t i = 0; i < 4; ++i) {
        fuzzers.push_back(
            {node, {small.buffer.fd(), pieces.buffer.fd()}, request_for(0, bdf), std::mt19937_64{seed + i}});
    }
    std::vector<std::thread> threads;
    for (auto& fuzzer : fuzzers) {
        threads.emplace_back([&fuzzer, count] {
            for (std::uint64_t i = 0; i < count / 4; ++i) {
                fuzzer.one();
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (const auto& fuzzer : fuzzers) {
        for (std::size_t i = 0; i < accepted.size(); ++i) {
            accepted[i] += fuzzer.accepted[i];
        }
    }
    const auto& [imports, reads, releases, others] = accepted;
    fmt::print("     of {} requests the kernel took {} imports, {} reads, {} releases, {} others\n", count, imports,
               reads, releases, others);
    expect(imports >= 100 && reads >= 100 && releases >= 100 && others >= 100, "enough of each were taken");
    Import request = request_for(small.buffer.fd(), bdf);
    const int fresh = open_node();
    expect(ask(fresh, uapi::dmabuf_import_import, &request) == 0, "the module still works");
    ::close(fresh);
    ::close(node);
}

// ---- what is left behind

std::string text_of(const char* path) {
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    return text.str();
}

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    return text.substr(text.rfind('\n') + 1);
}

/// "Total N objects, M bytes"
std::string buffers() {
    return last_line(text_of("/sys/kernel/debug/dma_buf/bufinfo"));
}

/// Objects in use, by slab cache.
std::map<std::string, long> slabs() {
    std::istringstream text{text_of("/proc/slabinfo")};
    std::map<std::string, long> counts;
    for (std::string line; std::getline(text, line);) {
        std::istringstream words{line};
        std::string name;
        long active = 0;
        if (words >> name >> active) {
            counts[name] = active;
        }
    }
    return counts;
}

void check_rounds(const std::string& bdf, int count) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
    const Memory memory{600};
    for (std::uint64_t i = 0; i < 300; ++i) {
        pieces.emplace_back(2 * i, 1);
    }
    const auto source = importer();
    const auto round = [&] {
        const Layout layout{memory, pieces};
        auto made = source.import(layout.buffer, function(bdf), Importer::Accept::any);
        return made && made->scatter_list().total() == layout.buffer.size() && made->release();
    };
    bool good = true;
    for (int i = 0; i < 100; ++i) { // the caches fill
        good = good && round();
    }
    const std::string before = buffers();
    const auto slabs_before = slabs();
    for (int i = 0; i < count; ++i) {
        good = good && round();
    }
    const auto slabs_after = slabs();
    expect(good, fmt::format("{} rounds of import and release", count));
    const std::string after = buffers();
    expect(!before.empty() && before == after, fmt::format("bufinfo: '{}', then '{}'", before, after));
    expect(slabs_before.size() > 20 && slabs_before.count("kmalloc-256") == 1, "the slab counts can be read");
    if (text_of("/proc/sys/kernel/osrelease").find("kasan") != std::string::npos) {
        // KASAN keeps what was freed in quarantine, and counts it in: uses of it are what such a kernel is for.
        fmt::print("     slab counts are not compared on a kernel with KASAN\n");
        return;
    }
    // One object a round would be `count`. Caches breathe by what their processors keep back.
    for (const auto& [name, active] : slabs_after) {
        const auto found = slabs_before.find(name);
        const long grown = active - (found == slabs_before.end() ? 0 : found->second);
        if (grown > 64) {
            expect(grown < count / 4, fmt::format("slab {} grew by {}", name, grown));
        }
    }
}

void check_kill(const std::string& bdf) {
    const Memory memory{64};
    const std::string before = buffers();
    for (int i = 0; i < 20; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            const auto source = importer();
            std::vector<dmabuf::Import> held;
            for (;;) {
                const Layout layout{memory, {{1, 60}, {0, 1}}};
                auto made = source.import(layout.buffer, function(bdf), Importer::Accept::any);
                if (!made) {
                    ::_exit(1);
                }
                held.push_back(std::move(*made));
                if (held.size() > 20) {
                    held.clear();
                }
            }
        }
        ::usleep(20'000 + static_cast<useconds_t>(i) * 7'000);
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        expect(WIFSIGNALED(status), "killed while it imports");
    }
    const std::string after = buffers();
    expect(!before.empty() && before == after, fmt::format("bufinfo: '{}', then '{}'", before, after));
}

void hold(const std::string& bdf) {
    const Memory memory{4};
    const Layout layout{memory, {{0, 4}}};
    const auto source = importer();
    const auto made = need(source.import(layout.buffer, function(bdf), Importer::Accept::any), "imports");
    fmt::print("holding\n");
    std::fflush(stdout);
    ::pause();
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto is = [&](const char* verb, std::size_t count) { return words.size() == count + 1 && words[0] == verb; };
    if (is("fuzz", 3)) {
        check_fuzz(words[1], std::stoull(words[2]), std::stoull(words[3]));
    } else if (is("rounds", 2)) {
        check_rounds(words[1], std::stoi(words[2]));
    } else if (is("kill", 1)) {
        check_kill(words[1]);
    } else if (is("hold", 1)) {
        hold(words[1]);
    } else {
        fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
        return 2;
    }
    return failures == 0 ? 0 : 1;
}
