package upf

import "github.com/culvert-net/culvert/internal/upf/journal"

// Mark returns the files of the journal of a UPF as they are at this moment.
func Mark(u *UPF) ([]*journal.Part, error) { return u.store.Mark() }
