// tokenizer.json writes its expressions in Oniguruma's Ruby syntax; we match with PCRE2. This
// translates the constructs whose meaning is the same (or can be spelled out) and refuses every
// other one by name.
#pragma once

#include <string>
#include <string_view>

namespace longhaul::text {

/// The PCRE2 spelling of an Oniguruma expression; UserError naming `where` and the construct it
/// does not know.
std::string translate_pattern(std::string_view pattern, const std::string& where);

/// The members of `\p{category}` (L, Lu, N, Nd, P …) as the inside of a PCRE2 class, newer code
/// points included.
std::string category_members(std::string_view category);

/// The inside of a PCRE2 class that matches `\w` as the added-token rules understand it.
std::string word_character_members();

}  // namespace longhaul::text
