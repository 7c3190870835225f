// SPDX-License-Identifier: MIT OR Apache-2.0
// How much a thread matters, for as long as an object is there.
#undef NDEBUG
#include <cassert>

#include "wakeful.hpp"

int main() {
    {
        wakeful::matters urgent(wakeful::importance::urgent);
        {
            wakeful::matters little(wakeful::importance::background);
            assert(wakeful_importance(WAKEFUL_BACKGROUND) == WAKEFUL_BACKGROUND);
        }
        assert(wakeful_importance(WAKEFUL_URGENT) == WAKEFUL_URGENT);
    }
    assert(wakeful_importance(WAKEFUL_NORMAL) == WAKEFUL_NORMAL);
}
