// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iterator>
#include <memory>
#include <ostream>
#include <vector>

#include "commands.hpp"

namespace upcie::cli {

namespace {

struct OptionWord {
    std::string name; ///< "--json"
    std::string help;
    bool takes_value = false;
    std::vector<std::string> values; ///< what it may be, where that is a short list
};

struct CommandWords {
    std::string name;
    std::string help;
    std::vector<OptionWord> options;
    std::vector<std::string> positionals;
    bool takes_device = false;
};

std::vector<std::string> values_of(const std::string& option) {
    if (option == "--path") {
        return {"automatic", "cdev", "group", "noiommu", "uio"};
    }
    if (option == "--driver") {
        return {"vfio-pci", "uio_pci_generic"};
    }
    if (option == "--pattern") {
        return {"zero", "ones", "stamp"};
    }
    return {};
}

/// Read off the parser itself, so that completion knows what the program knows.
std::vector<CommandWords> words_of(const CLI::App& app) {
    std::vector<CommandWords> commands;
    for (const auto* subcommand : app.get_subcommands(nullptr)) {
        CommandWords words{subcommand->get_name(), subcommand->get_description(), {}, {}, false};
        for (const auto* option : subcommand->get_options()) {
            words.takes_device = words.takes_device || option->get_name() == "device";
            for (const auto& name : option->get_lnames()) {
                words.options.push_back(
                    {"--" + name, option->get_description(), option->get_expected_max() > 0, values_of("--" + name)});
            }
        }
        if (subcommand->get_name() == "completion") {
            words.positionals = {"bash", "zsh", "fish"};
        }
        commands.push_back(std::move(words));
    }
    return commands;
}

/// Options whose value is a file or a folder, or one of the devices that there are.
bool takes_file(std::string_view option) {
    constexpr std::string_view names[] = {"--input", "--output", "--out", "--diff", "--render", "--compare"};
    return std::find(std::begin(names), std::end(names), option) != std::end(names);
}
bool takes_device(std::string_view option) {
    return option == "--device";
}

std::string shell_quoted(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\'') {
            out += "'\\''";
        } else {
            out += c;
        }
    }
    return out;
}

// The devices that there are: NVMe functions by address, and vfio's nodes.
constexpr std::string_view find_devices =
    "grep -l 0x010802 /sys/bus/pci/devices/*/class 2>/dev/null | cut -d/ -f6; ls -d /dev/vfio/devices/* 2>/dev/null";

void print_bash(std::ostream& out, const std::vector<CommandWords>& commands) {
    std::string names;
    for (const auto& command : commands) {
        names += (names.empty() ? "" : " ") + command.name;
    }
    out << "# bash completion for upcie, made by `upcie completion bash`\n"
           "_upcie() {\n"
           "    local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\"\"\n"
           "    local line=\"${COMP_LINE:0:COMP_POINT}\"\n"
           "    # A colon parts words for readline: the word that counts is the one since the last space.\n"
           "    local whole=\"${line##* }\"\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        << "        COMPREPLY=($(compgen -W '" << names << " --help --version' -- \"$current\"))\n"
        << "        return\n"
           "    fi\n"
           "    case \"$previous\" in\n"
           "    --input|--output|--out|--diff|--render|--compare) COMPREPLY=($(compgen -f -- \"$current\")); return "
           ";;\n";
    for (const char* option : {"--path", "--driver", "--pattern"}) {
        out << "    " << option << ") COMPREPLY=($(compgen -W '" << fmt::format("{}", fmt::join(values_of(option), " "))
            << "' -- \"$current\")); return ;;\n";
    }
    out << "    esac\n"
           "    case \"${COMP_WORDS[1]}\" in\n";
    for (const auto& command : commands) {
        out << "    " << command.name << ")";
        std::string words;
        for (const auto& option : command.options) {
            words += " " + option.name;
        }
        for (const auto& positional : command.positionals) {
            words += " " + positional;
        }
        out << " words='" << words.substr(words.empty() ? 0 : 1) << "' ;;\n";
    }
    out << "    esac\n"
           "    case \"$whole\" in\n"
           "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
           "    *) COMPREPLY=($(compgen -W \"$words sim: $("
        << find_devices
        << ")\" -- \"$whole\"))\n"
           "       local cut=\"${whole%\"$current\"}\"\n"
           "       COMPREPLY=(\"${COMPREPLY[@]#\"$cut\"}\") ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _upcie upcie\n";
}

void print_zsh(std::ostream& out, const std::vector<CommandWords>& commands) {
    out << "#compdef upcie\n"
           "# zsh completion for upcie, made by `upcie completion zsh`\n"
           "_upcie_device() {\n"
           "    local -a devices\n"
        << "    devices=(${(f)\"$(" << find_devices << ")\"} sim:)\n"
        << "    compadd -a devices\n"
           "}\n"
           "_upcie() {\n"
           "    local -a commands\n"
           "    commands=(\n";
    for (const auto& command : commands) {
        out << "        '" << command.name << ':' << shell_quoted(command.help) << "'\n";
    }
    out << "    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n";
    for (const auto& command : commands) {
        out << "    " << command.name << ") _arguments";
        for (const auto& option : command.options) {
            std::string help;
            for (const char c : option.help) {
                help += c == '[' || c == ']' || c == ':' ? std::string{'\\', c} : std::string{c};
            }
            out << " \\\n        '" << option.name << '[' << shell_quoted(help) << ']';
            if (option.takes_value) {
                out << ":value:";
                if (!option.values.empty()) {
                    out << '(' << fmt::format("{}", fmt::join(option.values, " ")) << ')';
                } else if (takes_file(option.name)) {
                    out << "_files";
                } else if (takes_device(option.name)) {
                    out << "_upcie_device";
                }
            }
            out << '\'';
        }
        if (!command.positionals.empty()) {
            out << " \\\n        '1:shell:(" << fmt::format("{}", fmt::join(command.positionals, " ")) << ")'";
        }
        if (command.takes_device) {
            out << " \\\n        '1:device:_upcie_device'";
        }
        out << " ;;\n";
    }
    out << "    esac\n"
           "}\n"
           "_upcie \"$@\"\n";
}

void print_fish(std::ostream& out, const std::vector<CommandWords>& commands) {
    out << "# fish completion for upcie, made by `upcie completion fish`\n"
           "complete -c upcie -f\n";
    for (const auto& command : commands) {
        out << "complete -c upcie -n __fish_use_subcommand -a " << command.name << " -d '" << shell_quoted(command.help)
            << "'\n";
        const std::string when = fmt::format("complete -c upcie -n '__fish_seen_subcommand_from {}'", command.name);
        for (const auto& option : command.options) {
            out << when << " -l " << option.name.substr(2) << (option.takes_value ? " -r" : "");
            if (!option.values.empty()) {
                out << " -a '" << fmt::format("{}", fmt::join(option.values, " ")) << "'";
            } else if (takes_file(option.name)) {
                out << " -F";
            } else if (takes_device(option.name)) {
                out << " -a '(sh -c \"" << find_devices << "\")'";
            }
            out << " -d '" << shell_quoted(option.help) << "'\n";
        }
        if (!command.positionals.empty()) {
            out << when << " -a '" << fmt::format("{}", fmt::join(command.positionals, " ")) << "'\n";
        }
        if (command.takes_device) {
            out << when << " -a 'sim: (sh -c \"" << find_devices << "\")'\n";
        }
    }
}

} // namespace

void add_completion(CLI::App& app, Context& context, Action& action) {
    auto shell = std::make_shared<std::string>();
    auto* command = app.add_subcommand("completion", "Print a completion script for a shell");
    command->add_option("shell", *shell, "bash, zsh, or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->type_name("SHELL");
    command->callback([&app, &context, &action, shell] {
        action = [&app, &context, shell] {
            const auto words = words_of(app);
            if (*shell == "bash") {
                print_bash(context.out, words);
            } else if (*shell == "zsh") {
                print_zsh(context.out, words);
            } else {
                print_fish(context.out, words);
            }
            return ExitCode::ok;
        };
    });
}

} // namespace upcie::cli
