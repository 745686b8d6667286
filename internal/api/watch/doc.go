// Package watch reads from an agent what the web page shows, for all viewers at once.
//
//  1. A Watcher has a cell for each view. A cell reads when a viewer asks and the last
//     reading is a second old, or older where reading takes long (pause).
//  2. Rates are the difference of two readings, by the server's clock.
//  3. A stream sends what differs from what it has sent.
//
// Each cell has a lock, which it holds while it reads. Nothing runs while nobody watches, but
// Run, which keeps the last hour of drops.
package watch
