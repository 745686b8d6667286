// Package port owns the tables port, access, device and lost_by_device: whose frames the data
// path handles, what may enter by them, and by which interfaces frames leave.
//
//  1. Set an interface's port after the program is attached; until then its frames
//     pass to the kernel.
//  2. PutDevice each interface that frames may leave by.
//  3. Sweep, once all are set, clears what an earlier daemon had.
//
// The data path's lock guards the Table. Methods ending in Locked, MarkSteered and
// Sweep expect the caller to hold it; the others take it.
package port
