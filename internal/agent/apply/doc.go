// Package apply writes: the steps of a plan to the data path, the kernel's
// addresses, routes and neighbours to the data path, and the overlay's interfaces,
// routes and rules to the kernel.
//
// Its user
//
//  1. makes a Writer, a Network and an Overlay of one DataPath,
//  2. calls Writer.Commit for a change that somebody asks for, which is written as
//     a whole or not at all, and Writer.Converge where links changed, which goes as
//     far as it can, and
//  3. calls Network.Sync and Overlay.Sync after each of them, and again while
//     Failed says that something could not be written.
//
// Nothing here locks or starts a goroutine: the agent holds its lock around every
// call.
package apply
