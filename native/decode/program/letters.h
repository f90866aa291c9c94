// Sizes in the notation that kinds of nodes declare: a sum of products such as "K", "2F", "HD+2GD"
// or "1". A letter stands for the same number in all of a node, P for limits.max_seq_length; the
// empty size is any number. tensor_ops_decode/kinds/sizes.py reads the same notation.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "decode/program/node_kind.h"

namespace tensor_ops::decode {

// The numbers that the letters of a node's slots stand for. The first slot with a letter decides.
class Letters {
 public:
  // where: the node in words, for errors.
  Letters(std::string where, std::size_t positions);

  // Throws ValueError unless a number equals a size; `what` says in words which number it is.
  void match(std::string_view size, std::size_t given, const std::string& what);
  // Throws ValueError unless a relation holds, if all of its letters are decided.
  void require(const Relation& relation) const;
  // The number that a size stands for. All of its letters must be decided. Throws SizeError where
  // it is more than any memory.
  std::size_t value(std::string_view size) const;

 private:
  struct Letter {
    std::size_t value;
    std::string words;
  };
  bool knows(std::string_view size) const;
  std::string in_words(std::string_view size) const;

  const std::string where_;
  std::map<char, Letter> letters_;
};

}  // namespace tensor_ops::decode
