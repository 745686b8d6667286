// Package codec encodes sessions and their usage, for memory and for the journal.
//
// Encodings are small: a session with two PDRs takes some 150 octets. Numbers
// have a variable length, runs of zeros are counted, times are differences, a
// text that occurred before is an index, and lists begin with their length.
//
// To write, call NewWriter, the methods of the fields, Bytes, and Release. To
// read, call NewReader, the same methods in the same order, and Err. A Codec
// belongs to one goroutine.
package codec
