#include "command.h"

#include <algorithm>
#include <array>
#include <vector>

#include "commands/commands.h"
#include "options.h"

namespace sml {
namespace {

constexpr std::array<CommandInfo, 13> kCommands = {{
    {"pack", "merge files into a container", make_pack_command},
    {"ls", "list keys, in name order", make_ls_command},
    {"info", "counts, sizes and containers of a data set", make_info_command},
    {"shuffle", "keys in the random order of an epoch", make_shuffle_command},
    {"cat", "records, one after another, as tar, as frames or as files", make_cat_command},
    {"serve-stdio", "answer a training process: batches over standard input and output",
     make_serve_stdio_command},
    {"verify", "check every checksum", make_verify_command},
    {"recover", "save what is intact of a damaged container", make_recover_command},
    {"cp", "copy containers between files, directories and clusters", make_cp_command},
    {"rm", "remove containers, data sets, and what crashed packers left", make_rm_command},
    {"cache", "look after the blocks and indexes kept on this machine", make_cache_command},
    {"help", "help for a command", make_help_command},
    {"version", "versions of sml, its formats and its libraries", make_version_command},
}};

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min(
          {cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::span<const CommandInfo> all_commands() { return kCommands; }

const CommandInfo* find_command(std::string_view name) {
  const auto* const found =
      std::find_if(kCommands.begin(), kCommands.end(),
                   [name](const CommandInfo& info) { return info.name == name; });
  return found == kCommands.end() ? nullptr : found;
}

std::unique_ptr<Command> make_command(const CommandInfo& info, CommandLine& line) {
  auto command = info.make();
  command->define(line);
  return command;
}

UsageError unknown_command(std::string_view name) {
  std::string message = "unknown command '" + std::string(name.substr(0, 64)) + "'";
  const CommandInfo* nearest = nullptr;
  std::size_t least = 3;
  for (const CommandInfo& info : kCommands) {
    const std::size_t distance = name.size() > 32 ? name.size() : edit_distance(name, info.name);
    if (distance < least && distance < info.name.size()) {
      least = distance;
      nearest = &info;
    }
  }
  message += nearest != nullptr ? "; did you mean '" + std::string(nearest->name) + "'?"
                                : "; 'sml help' lists them";
  return UsageError(message);
}

}  // namespace sml
