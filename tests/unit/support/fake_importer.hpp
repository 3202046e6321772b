// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include <poll.h>

#include <support/mock_system.hpp>
#include <uapi/dmabuf_import.hpp>

namespace upcie::test {

/// A /dev/upcie_dmabuf_import of a few lines behind MockSystem; each request can be made to fail once.
class FakeImporter {
  public:
    static constexpr int fd = 800;

    explicit FakeImporter(MockSystem& system) {
        using testing::_;
        ON_CALL(system, open(testing::StrEq("/dev/upcie_dmabuf_import"), _, _)).WillByDefault(testing::Return(fd));
        ON_CALL(system, close(fd)).WillByDefault([this](int) {
            open = false;
            handles.clear();
            return 0;
        });
        ON_CALL(system, ioctl(fd, _, _)).WillByDefault([this](int, unsigned long request, void* argument) {
            return answer(request, argument);
        });
    }

    bool open = true;
    std::map<unsigned long, int> failures; ///< request -> errno, for the next call of it
    std::uint32_t api_version = uapi::dmabuf_import_api_version;
    uapi::DmabufImport facts = [] {
        uapi::DmabufImport made{};
        made.size = 12288;
        made.pin = uapi::dmabuf_import_pin_pinned;
        std::strncpy(made.exporter, "nv_dmabuf", sizeof made.exporter);
        return made;
    }();
    std::vector<uapi::DmabufImportSegment> segments;
    std::uint64_t most_a_call = ~std::uint64_t{0};
    std::function<void(uapi::DmabufImportSegments&)> distort; ///< what SEGMENTS answers
    std::set<std::uint32_t> handles;
    std::set<std::uint32_t> revoked;
    std::vector<uapi::DmabufImport> imports;
    std::vector<uapi::DmabufImportSegments> reads;

  private:
    static int refuse(int code) {
        errno = code;
        return -1;
    }

    int answer(unsigned long request, void* argument) {
        if (const auto failure = failures.find(request); failure != failures.end()) {
            const int code = failure->second;
            failures.erase(failure);
            return refuse(code);
        }
        switch (request) {
        case uapi::dmabuf_import_version:
            *static_cast<uapi::DmabufImportVersion*>(argument) = {api_version, 4096};
            return 0;
        case uapi::dmabuf_import_import: {
            auto& in = *static_cast<uapi::DmabufImport*>(argument);
            imports.push_back(in);
            in = facts;
            in.handle = static_cast<std::uint32_t>(imports.size());
            in.segment_count = segments.size();
            handles.insert(in.handle);
            return 0;
        }
        case uapi::dmabuf_import_segments: {
            auto& in = *static_cast<uapi::DmabufImportSegments*>(argument);
            reads.push_back(in);
            if (handles.count(in.handle) == 0) {
                return refuse(ENOENT);
            }
            if (revoked.count(in.handle) != 0) {
                return refuse(ESTALE);
            }
            in.written = std::min({in.capacity, most_a_call, segments.size() - in.first});
            std::copy_n(segments.begin() + static_cast<std::ptrdiff_t>(in.first), in.written,
                        reinterpret_cast<uapi::DmabufImportSegment*>(in.entries));
            in.total = segments.size();
            if (distort) {
                distort(in);
            }
            return 0;
        }
        case uapi::dmabuf_import_release:
            return handles.erase(static_cast<uapi::DmabufImportRelease*>(argument)->handle) == 1 ? 0 : refuse(ENOENT);
        default:
            return refuse(ENOTTY);
        }
    }
};

} // namespace upcie::test
