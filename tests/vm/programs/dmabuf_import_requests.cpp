// SPDX-License-Identifier: BSD-3-Clause
// The kernel module's requests by themselves, with what no library would send.
//   dmabuf_import_requests arguments BDF   every argument that must be refused, and small arrays
//   dmabuf_import_requests handles BDF     whose they are, and how many there can be
#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dmabuf_layout.hpp"

using namespace upcie;
using namespace upcie::test;

namespace {

/// Imports with one thing changed, and expects this errno. Nothing may have come back.
template <class Change>
void expect_import(int node, const Import& good, int wanted, const std::string& what, Change change) {
    Import request = good;
    change(request);
    const int got = ask(node, uapi::dmabuf_import_import, &request);
    expect(got == wanted && request.handle == 0, fmt::format("import, {}: {}", what, errno_name(got)));
}

void check_imports(int node, const Import& good, const Memory& memory) {
    const auto bad = [&](int wanted, const char* what, auto change) {
        expect_import(node, good, wanted, what, change);
    };
    const int regular = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bad(EBADF, "fd -1", [](Import& r) { r.fd = -1; });
    bad(EBADF, "an fd that is not open", [](Import& r) { r.fd = 1000; });
    bad(EINVAL, "a regular file", [&](Import& r) { r.fd = regular; });
    bad(EINVAL, "a memfd", [&](Import& r) { r.fd = memory.fd.get(); });
    bad(EINVAL, "the node itself", [&](Import& r) { r.fd = node; });
    bad(EINVAL, "flags", [](Import& r) { r.flags = 1; });
    bad(EINVAL, "the highest flag", [](Import& r) { r.flags = 0x80000000; });
    bad(EINVAL, "reserved", [](Import& r) { r.reserved = 1; });
    bad(EINVAL, "domain 2^31", [](Import& r) { r.domain = 0x80000000; });
    bad(EINVAL, "bus 256", [](Import& r) { r.bus = 256; });
    bad(EINVAL, "device 32", [](Import& r) { r.device = 32; });
    bad(EINVAL, "function 8", [](Import& r) { r.function = 8; });
    bad(ENXIO, "a domain that is not there", [](Import& r) { r.domain = 0x7fffffff; });
    bad(ENXIO, "a function that is not there", [](Import& r) { r.bus = 255, r.device = 31, r.function = 7; });
    ::close(regular);
    expect(ask(node, uapi::dmabuf_import_import, static_cast<Import*>(nullptr)) == EFAULT, "import, no structure");
    void* const read_only = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<Import*>(read_only) = good;
    ::mprotect(read_only, page, PROT_READ);
    expect(ask(node, uapi::dmabuf_import_import, static_cast<Import*>(read_only)) == EFAULT,
           "import, the answer cannot be written");
    ::munmap(read_only, page);
}

void check_segments(int node, std::uint32_t handle, std::uint64_t count) {
    constexpr Segment canary{0xdead, 0xbeef, 0x77777777, 0x55555555};
    const auto same = [](const Segment& a, const Segment& b) {
        return a.address == b.address && a.length == b.length && a.kind == b.kind && a.reserved == b.reserved;
    };
    std::vector<Segment> all(count + 8, canary);
    const auto read = [&](std::vector<Segment>& into, std::uint64_t first, std::uint64_t capacity, Segments& request) {
        request = {handle, 0, first, reinterpret_cast<std::uintptr_t>(into.data()), capacity, 0, 0};
        return ask(node, uapi::dmabuf_import_segments, &request);
    };
    Segments request{};
    expect(read(all, 0, count + 8, request) == 0 && request.written == count && request.total == count &&
               same(all[count], canary) && all[count - 1].reserved == 0,
           fmt::format("all {} segments, and nothing behind them is written", count));
    bool bounded = true;
    for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, count - 1}) {
        for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, count - 1, count}) {
            std::vector<Segment> part(count + 8, canary);
            const std::uint64_t wanted = std::min(capacity, count - first);
            bounded = bounded && read(part, first, capacity, request) == 0 && request.written == wanted &&
                      request.total == count && same(part[wanted], canary);
            for (std::uint64_t i = 0; i < wanted; ++i) {
                bounded = bounded && same(part[i], all[first + i]);
            }
        }
    }
    expect(bounded, "small arrays get what fits, and are told how many there are");
    expect(read(all, 0, ~std::uint64_t{0}, request) == 0 && request.written == count, "a capacity of 2^64-1 is cut");
    expect(read(all, count + 1, 1, request) == EINVAL, "first behind the end");
    expect(read(all, ~std::uint64_t{0}, 1, request) == EINVAL, "first 2^64-1");
    request = {handle, 1, 0, reinterpret_cast<std::uintptr_t>(all.data()), 1, 0, 0};
    expect(ask(node, uapi::dmabuf_import_segments, &request) == EINVAL, "segments, flags");
    for (const std::uint64_t where : {std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63}) {
        request = {handle, 0, 0, where, count, 0, 0};
        expect(ask(node, uapi::dmabuf_import_segments, &request) == EFAULT, fmt::format("an array at {:#x}", where));
        request.capacity = 0;
        expect(ask(node, uapi::dmabuf_import_segments, &request) == 0, "is not looked at when nothing is asked for");
    }
    request = {handle + 1, 0, 0, 0, 0, 0, 0};
    expect(ask(node, uapi::dmabuf_import_segments, &request) == ENOENT, "segments of no handle");
}

void check_arguments(const std::string& bdf) {
    const Memory memory{64};
    const Layout layout{memory, {{1, 20}, {40, 20}, {0, 1}}};
    const int node = open_node();
    Import good = request_for(layout.buffer.fd(), bdf);
    check_imports(node, good, memory);
    expect(ask(node, uapi::dmabuf_import_import, &good) == 0 && good.handle != 0, "a good import among the bad ones");
    check_segments(node, good.handle, good.segment_count);

    Release release{good.handle, 1};
    expect(ask(node, uapi::dmabuf_import_release, &release) == EINVAL, "release, reserved");
    release = {0, 0};
    expect(ask(node, uapi::dmabuf_import_release, &release) == ENOENT, "release of handle 0");
    release = {good.handle, 0};
    expect(ask(node, uapi::dmabuf_import_release, &release) == 0, "release");
    expect(ask(node, uapi::dmabuf_import_release, &release) == ENOENT, "a second time");
    uapi::DmabufImportVersion version{};
    expect(ask(node, uapi::dmabuf_import_version, &version) == 0 && version.api_version == 1 &&
               version.most_handles == 4096,
           "version");
    for (const unsigned long request : std::initializer_list<unsigned long>{
             uapi::dmabuf_import_version + 1000, _IO(0xbc, 0), _IO(0xbc, 4), _IOWR(0xbc, 1, int), 0}) {
        expect(ask(node, request, &version) == ENOTTY, fmt::format("request {:#x}", request));
    }
    ::close(node);
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(::setuid(65534) != 0 ? 2 : ::open(node_name, O_RDWR) >= 0 ? 1 : errno == EACCES ? 0 : 3);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    expect(status == 0, "another user may not open the node");
}

void check_handles(const std::string& bdf) {
    const Memory memory{4};
    const Layout layout{memory, {{0, 4}}};
    const int one = open_node();
    const int two = open_node();
    Import first = request_for(layout.buffer.fd(), bdf);
    Import second = first;
    expect(ask(one, uapi::dmabuf_import_import, &first) == 0, "one opener imports");
    Release release{first.handle, 0};
    Segments segments{first.handle, 0, 0, 0, 0, 0, 0};
    expect(ask(two, uapi::dmabuf_import_segments, &segments) == ENOENT, "its handle means nothing to another opener");
    expect(ask(two, uapi::dmabuf_import_release, &release) == ENOENT, "who cannot release it");
    expect(ask(two, uapi::dmabuf_import_import, &second) == 0, "both import the same buffer");
    ::close(two);
    expect(ask(one, uapi::dmabuf_import_segments, &segments) == 0, "one stays when the other closes");
    pollfd quiet{one, POLLIN | POLLPRI, 0};
    expect(::poll(&quiet, 1, 0) == 0, "no event");

    std::uint32_t made = 1;
    int error = 0;
    Import last = request_for(layout.buffer.fd(), bdf);
    for (; made < 5000; ++made) {
        last = request_for(layout.buffer.fd(), bdf);
        error = ask(one, uapi::dmabuf_import_import, &last);
        if (error != 0) {
            break;
        }
    }
    expect(made == 4096 && error == EMFILE, fmt::format("{} handles, then {}", made, errno_name(error)));
    expect(ask(one, uapi::dmabuf_import_release, &release) == 0, "one is released");
    last = request_for(layout.buffer.fd(), bdf);
    expect(ask(one, uapi::dmabuf_import_import, &last) == 0 && last.handle != first.handle,
           "which makes room for one, of a new handle");
    ::close(one);
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto is = [&](const char* verb, std::size_t count) { return words.size() == count + 1 && words[0] == verb; };
    if (is("arguments", 1)) {
        check_arguments(words[1]);
    } else if (is("handles", 1)) {
        check_handles(words[1]);
    } else {
        fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
        return 2;
    }
    return failures == 0 ? 0 : 1;
}
