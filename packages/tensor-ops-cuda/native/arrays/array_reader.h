// What reads the array arguments of a call, by the name that native/binding/checks.h gives it.
#pragma once

#include "arrays/place.h"

namespace tensor_ops {

using ArrayReader = Place;

}  // namespace tensor_ops
