// Package store is the state file: what the API added, what others said, and the
// configuration that was applied in place of the file's.
//
// Its user
//
//  1. opens it (Open), which one daemon at a time can, and loads it (Load),
//  2. calls Save for each change of the desired state, before its caller gets
//     an answer,
//  3. calls Note for each change of the observed state alone, and runs Keep, which
//     writes many of them at once: a crash loses no more than others say again, and
//  4. calls Flush and Close at the end.
//
// Package pods keeps its book in the same file (DB). A Store locks itself: mu
// guards what is on disk, noteMu what is still to be written.
package store
