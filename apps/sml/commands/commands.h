// The subcommands, one per file.
#pragma once

#include <memory>

#include "command.h"

namespace sml {

std::unique_ptr<Command> make_pack_command();
std::unique_ptr<Command> make_ls_command();
std::unique_ptr<Command> make_info_command();
std::unique_ptr<Command> make_shuffle_command();
std::unique_ptr<Command> make_cat_command();
std::unique_ptr<Command> make_serve_stdio_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_recover_command();
std::unique_ptr<Command> make_cp_command();
std::unique_ptr<Command> make_rm_command();
std::unique_ptr<Command> make_cache_command();
std::unique_ptr<Command> make_help_command();
std::unique_ptr<Command> make_version_command();

// What `sml` and `sml help` print.
std::string overview();

}  // namespace sml
