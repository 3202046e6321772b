// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <support/mock_system.hpp>
#include <uapi/iommufd.hpp>

namespace upcie::test {

/// A /dev/iommu of a few lines behind MockSystem: enough manners to test its users, each request able to fail once.
class FakeIommufd {
  public:
    static constexpr int fd = 700;

    explicit FakeIommufd(MockSystem& system) {
        using testing::_;
        ON_CALL(system, open(testing::StrEq("/dev/iommu"), _, _)).WillByDefault(testing::Return(fd));
        ON_CALL(system, close(fd)).WillByDefault(testing::Return(0));
        ON_CALL(system, ioctl(fd, _, _)).WillByDefault([this](int, unsigned long request, void* argument) {
            return answer(request, argument);
        });
    }

    std::map<unsigned long, int> failures; ///< request -> errno, for the next call of it
    std::vector<uapi::IommuIovaRange> ranges{{0, 0xfedfffff}, {0xfef00000, (1ULL << 39) - 1}};
    std::uint64_t alignment = 4096;
    std::set<std::uint32_t> objects;
    std::map<std::uint64_t, std::uint64_t> mappings; ///< IOVA -> length
    std::vector<uapi::IommuIoasMap> maps;
    std::vector<uapi::IommuIoasMapFile> file_maps;
    std::vector<uapi::IommuIovaRange> allowed;
    std::uint64_t rlimit_mode = 0;
    std::uint64_t unmap_answer = ~0ULL; ///< ~0: the length of the mapping
    /// Answers of GET_PA: at an IOVA offset, address and length; empty: ENOTTY as before Linux 7.3.
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> physical;
    std::uint64_t next_iova = 0x100000;

  private:
    template <class T>
    static T& as(void* argument) {
        return *static_cast<T*>(argument);
    }
    static int refuse(int code) {
        errno = code;
        return -1;
    }

    int map(std::uint32_t flags, std::uint64_t length, std::uint64_t& iova) {
        if ((flags & uapi::iommu_ioas_map_fixed_iova) == 0) {
            iova = next_iova;
            next_iova += length + 0x1000;
        }
        if (mappings.count(iova) != 0) {
            return refuse(EEXIST);
        }
        mappings[iova] = length;
        return 0;
    }

    int answer(unsigned long request, void* argument) {
        if (const auto failure = failures.find(request); failure != failures.end()) {
            const int code = failure->second;
            failures.erase(failure);
            return refuse(code);
        }
        switch (request) {
        case uapi::iommu_ioas_alloc:
            as<uapi::IommuIoasAlloc>(argument).out_ioas_id = static_cast<std::uint32_t>(objects.size()) + 3;
            objects.insert(static_cast<std::uint32_t>(objects.size()) + 3);
            return 0;
        case uapi::iommu_destroy:
            return objects.erase(as<uapi::IommuDestroy>(argument).id) == 1 ? 0 : refuse(ENOENT);
        case uapi::iommu_ioas_iova_ranges: {
            auto& in = as<uapi::IommuIoasIovaRanges>(argument);
            if (objects.count(in.ioas_id) == 0) {
                return refuse(ENOENT);
            }
            const std::size_t room = in.num_iovas;
            in.num_iovas = static_cast<std::uint32_t>(ranges.size());
            in.out_iova_alignment = alignment;
            if (room < ranges.size()) {
                return refuse(EMSGSIZE);
            }
            std::copy(ranges.begin(), ranges.end(), reinterpret_cast<uapi::IommuIovaRange*>(in.allowed_iovas));
            return 0;
        }
        case uapi::iommu_ioas_allow_iovas: {
            const auto& in = as<uapi::IommuIoasAllowIovas>(argument);
            const auto* const list = reinterpret_cast<const uapi::IommuIovaRange*>(in.allowed_iovas);
            allowed.assign(list, list + in.num_iovas);
            return 0;
        }
        case uapi::iommu_ioas_map: {
            auto& in = as<uapi::IommuIoasMap>(argument);
            maps.push_back(in);
            return map(in.flags, in.length, in.iova);
        }
        case uapi::iommu_ioas_map_file: {
            auto& in = as<uapi::IommuIoasMapFile>(argument);
            file_maps.push_back(in);
            return map(in.flags, in.length, in.iova);
        }
        case uapi::iommu_ioas_unmap: {
            auto& in = as<uapi::IommuIoasUnmap>(argument);
            const auto found = mappings.find(in.iova);
            if (found == mappings.end() || found->second != in.length) {
                return refuse(ENOENT);
            }
            in.length = unmap_answer == ~0ULL ? found->second : unmap_answer;
            mappings.erase(found);
            return 0;
        }
        case uapi::iommu_option: {
            auto& in = as<uapi::IommuOption>(argument);
            if (in.op == uapi::iommu_option_op_set) {
                rlimit_mode = in.val64;
            } else {
                in.val64 = rlimit_mode;
            }
            return 0;
        }
        case uapi::iommu_get_hw_info: {
            auto& in = as<uapi::IommuHwInfo>(argument);
            auto* const data = reinterpret_cast<std::uint8_t*>(in.data_uptr);
            data[0] = 0x5a;
            in.data_len = 1000; // what the kernel has: more than there is room for
            in.out_data_type = uapi::iommu_hw_info_type_intel_vtd;
            in.out_capabilities = 1;
            return 0;
        }
        case uapi::iommu_ioas_noiommu_get_pa: {
            auto& in = as<uapi::IommuIoasNoiommuGetPa>(argument);
            if (physical.empty()) {
                return refuse(ENOTTY);
            }
            const auto found = physical.find(in.iova);
            if (found == physical.end()) {
                return refuse(ENOENT);
            }
            in.out_phys = found->second.first;
            in.length = found->second.second;
            return 0;
        }
        default:
            return refuse(ENOTTY);
        }
    }
};

} // namespace upcie::test
