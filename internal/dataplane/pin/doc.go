// Package pin owns our directory in a bpffs: pinned maps, their layouts, programs and
// links. Nothing else in Culvert creates or removes a pin.
//
//  1. Create, pin all maps and programs, Publish: the directory appears by one rename.
//  2. Or Take what an earlier daemon made, and LoadMaps: maps that do not fit are
//     refused (ErrIncompatible), foreign pins too (ErrForeign).
//  3. Remove detaches and unpins everything, by exact names.
//
// A Dir holds a lock on its directory until Close or the end of the process, so
// that a second daemon is refused (ErrInUse). It has no lock of its own: the daemon
// has one owner of it.
package pin
