// SPDX-License-Identifier: BSD-3-Clause
// The importer against an exporter of chosen manners (tests/vm/modules/dmabuf_exporter): it pins, refuses, fails,
// moves, and describes what no other exporter of the VM does. The exporter counts what is attached, pinned and mapped.
//   dmabuf_import_manners IMPORTER_BDF BAR_BDF
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <upcie/os/fd.hpp>
#include <upcie/pci/enumeration.hpp>

#include "../modules/dmabuf_exporter/dmabuf_exporter.h"
#include "dmabuf_layout.hpp"

using namespace upcie;
using namespace upcie::test;
using dmabuf::Importer;
using dmabuf::Pinning;

namespace {

using Entries = std::vector<exporter_entry>;
const Entries plain{{0x100000, 0x3000}, {0x200000, 0x1000}};

struct Exported {
    explicit Exported(const Entries& entries, std::uint32_t manners = 0, std::uint64_t size = 0)
        : node{need(os::open_file(host(), "/dev/upcie_dmabuf_exporter", O_RDWR), "the exporter's node opens")} {
        exporter_create request{manners, static_cast<std::uint32_t>(entries.size()),
                                reinterpret_cast<std::uintptr_t>(entries.data()), size};
        for (const auto& entry : entries) {
            request.size += size == 0 ? entry.length : 0;
        }
        os::Fd made{host(), ::ioctl(node.get(), EXPORTER_CREATE, &request)};
        buffer = need(dmabuf::DmaBuf::adopt(host(), std::move(made)), "it exports");
    }
    void move() {
        exporter_state request{buffer.fd(), 0, 0, 0};
        expect(ask(node.get(), EXPORTER_MOVE, &request) == 0, "the memory moves");
    }
    void expect_state(std::uint32_t attached, std::uint32_t pinned, std::uint32_t mapped, const char* when) {
        exporter_state now{buffer.fd(), 9, 9, 9};
        const int error = ask(node.get(), EXPORTER_STATE, &now);
        expect(error == 0 && now.attached == attached && now.pinned == pinned && now.mapped == mapped,
               fmt::format("{}: {} attached, {} pinned, {} mapped", when, now.attached, now.pinned, now.mapped));
    }
    os::Fd node;
    dmabuf::DmaBuf buffer;
};

void check_pinning(const dmabuf::PciFunction& as) {
    const auto source = importer();
    {
        Exported exported{plain};
        auto one = need(source.import(exported.buffer, as), "imports");
        expect(one.facts().pinning == Pinning::pinned && one.facts().peer_to_peer, "pinned, peer to peer");
        exported.expect_state(1, 1, 1, "one import");
        {
            const auto two = need(importer().import(exported.buffer, as), "imports twice");
            exported.expect_state(2, 2, 2, "two imports");
        }
        exported.expect_state(1, 1, 1, "one released");
        exported.move();
        exported.expect_state(1, 1, 0, "moved all the same");
        expect(one.revoked().value_or(false), "which is told");
        expect(one.release().has_value(), "released");
        exported.expect_state(0, 0, 0, "all released");
    }
    {
        Exported exported{plain, EXPORTER_PIN_REFUSED | EXPORTER_NO_PEER};
        auto one = need(source.import(exported.buffer, as), "one that does not pin imports");
        expect(one.facts().pinning == Pinning::refused && !one.facts().peer_to_peer, "not pinned, not peer to peer");
        exported.expect_state(1, 0, 1, "not pinned");
        exported.move();
        exported.expect_state(1, 0, 0, "moved");
        expect(one.revoked().value_or(false), "which is told");
    }
    {
        Exported exported{plain, EXPORTER_PIN_MOVES};
        const auto one = need(source.import(exported.buffer, as), "one that moves when it pins imports");
        expect(one.revoked().value_or(true) == false, "its own move revokes nothing");
        const auto two = need(source.import(exported.buffer, as), "a second time");
        expect(one.revoked().value_or(false) && two.revoked().value_or(true) == false, "which revokes the first alone");
        exported.expect_state(2, 2, 1, "both are held");
    }
    for (const auto& [manner, code] : {std::pair{EXPORTER_PIN_FAILS, EBUSY}, {EXPORTER_MAP_FAILS, ENOSPC}}) {
        Exported exported{plain, static_cast<std::uint32_t>(manner)};
        refused(source.import(exported.buffer, as), code, "import a dma-buf", "the exporter's error comes through");
        exported.expect_state(0, 0, 0, "a failed import");
    }
    expect(source.any_revoked().value_or(true) == false, "no event is left");
}

void check_ends(const std::string& bdf) {
    Exported exported{plain};
    const int node = open_node();
    Import request = request_for(exported.buffer.fd(), bdf);
    void* const read_only = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<Import*>(read_only) = request;
    ::mprotect(read_only, page, PROT_READ);
    expect(ask(node, uapi::dmabuf_import_import, static_cast<Import*>(read_only)) == EFAULT, "an answer that is lost");
    ::munmap(read_only, page);
    exported.expect_state(0, 0, 0, "lets go");
    for (int i = 0; i < 3; ++i) {
        request = request_for(exported.buffer.fd(), bdf);
        expect(ask(node, uapi::dmabuf_import_import, &request) == 0, "imports");
    }
    exported.expect_state(3, 3, 3, "three handles");
    exported.move();
    ::close(node);
    exported.expect_state(0, 0, 0, "the file is closed");
}

void check_kinds(const std::string& bdf, const std::string& bar_of) {
    const Memory memory{1};
    const auto info = need(pci::find_function(host(), need(pci::Bdf::parse(bar_of), bar_of)), bar_of);
    const auto* const bar = info.bar(0);
    const std::uint64_t base = bar->address.value();
    const std::uint64_t end = base + bar->size.value();
    constexpr std::uint64_t top = ~std::uint64_t{0};
    using namespace uapi;
    const std::vector<std::pair<exporter_entry, std::uint32_t>> wanted{
        {{memory.address[0], page}, dmabuf_import_kind_ram},
        {{base, page}, dmabuf_import_kind_bar},
        {{end - page, page}, dmabuf_import_kind_bar},
        {{base, end - base}, dmabuf_import_kind_bar},
        {{memory.address[0], 1}, dmabuf_import_kind_ram},
        {{base - 1, page}, dmabuf_import_kind_unknown},
        {{end - 1, 2}, dmabuf_import_kind_unknown},
        {{std::uint64_t{1} << 45, page}, dmabuf_import_kind_unknown},
        {{top - 4095, page}, dmabuf_import_kind_unknown},
        {{top, 2}, dmabuf_import_kind_unknown},
        {{base, 0}, dmabuf_import_kind_unknown},
        {{0, 0}, dmabuf_import_kind_unknown},
    };
    Entries entries;
    for (const auto& [entry, kind] : wanted) {
        entries.push_back(entry);
    }
    Exported exported{entries};
    const int node = open_node();
    Import request = request_for(exported.buffer.fd(), bdf);
    expect(ask(node, uapi::dmabuf_import_import, &request) == 0 && request.segment_count == wanted.size(), "imports");
    std::vector<Segment> got(wanted.size());
    Segments read{request.handle, 0, 0, reinterpret_cast<std::uintptr_t>(got.data()), got.size(), 0, 0};
    expect(ask(node, uapi::dmabuf_import_segments, &read) == 0, "reads");
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        expect(got[i].address == entries[i].address && got[i].length == entries[i].length &&
                   got[i].kind == wanted[i].second,
               fmt::format("{:#x}, {:#x} bytes: kind {}", got[i].address, got[i].length, got[i].kind));
    }
    ::close(node);
}

void check_lists(const dmabuf::PciFunction& as) {
    const auto source = importer();
    Exported less{plain, 0, 0x5000};
    refused(source.import(less.buffer, as), ERANGE, "describes 16384 bytes", "less than the buffer");
    less.expect_state(0, 0, 0, "refused");
    Exported more{plain, 0, 0x2000};
    expect(need(source.import(more.buffer, as), "more than the buffer").scatter_list().total().value() == 0x4000,
           "all that is described is told");
    Exported large{{{0x10'0000'0000, 0xffff'f000}, {0x10'ffff'f000, 0xffff'f000}, {0x20'0000'0000, 0x2000}}};
    const auto made = need(source.import(large.buffer, as), "8 GiB");
    expect(made.scatter_list().runs().size() == 2 && made.scatter_list().total().value() == 0x2'0000'0000,
           "lengths are 64-bit");

    Entries many;
    for (std::uint64_t i = 0; i < 150'000; ++i) {
        many.push_back({0x1'0000'0000 + i * 0x2000, 0x1000});
    }
    Exported fragmented{many};
    const auto list = need(source.import(fragmented.buffer, as), "150000 segments").scatter_list();
    bool all = list.runs().size() == many.size();
    for (std::size_t i = 0; all && i < many.size(); ++i) {
        all =
            list.runs()[i].extent.address.value() == many[i].address && list.runs()[i].extent.length.value() == 0x1000;
    }
    expect(all, "each is where it was put");
}

/// Imports, reads and releases by three threads while a fourth moves the memory under them.
void check_races(const dmabuf::PciFunction& as) {
    Exported exported{plain};
    std::atomic<bool> stop{false};
    std::atomic<int> moves{0};
    std::atomic<int> whole{0};
    std::atomic<int> stale{0};
    std::atomic<int> others{0};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
        while (!stop) {
            exporter_state request{exported.buffer.fd(), 0, 0, 0};
            moves += ask(exported.node.get(), EXPORTER_MOVE, &request) == 0 ? 1 : 0;
            std::this_thread::yield();
        }
    });
    const auto source = importer();
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 1000; ++round) {
                auto made = source.import(exported.buffer, as);
                if (!made) {
                    ++(made.error().is(ESTALE) ? stale : others);
                    continue;
                }
                std::this_thread::yield();
                const bool revoked = made->revoked().value_or(false);
                ++(revoked ? stale : whole);
                others += made->scatter_list().total().value() == 0x4000 && made->release() ? 0 : 1;
            }
        });
    }
    for (std::size_t i = 1; i < threads.size(); ++i) {
        threads[i].join();
    }
    stop = true;
    threads[0].join();
    expect(whole >= 10 && stale >= 10 && moves >= 10 && others == 0,
           fmt::format("3000 imports under {} moves: {} whole, {} stale, {} otherwise", moves.load(), whole.load(),
                       stale.load(), others.load()));
    exported.expect_state(0, 0, 0, "afterwards");
    expect(source.any_revoked().value_or(true) == false, "no event is left");
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
        return 2;
    }
    const auto as = function(argv[1]);
    check_pinning(as);
    check_ends(argv[1]);
    check_kinds(argv[1], argv[2]);
    check_lists(as);
    check_races(as);
    return failures == 0 ? 0 : 1;
}
