// Package message copies Go structs to protobuf messages and back. One mapping
// serves every message of the management API, because both sides have the same
// names.
//
// A field of a struct has the message's field with the name of its JSON tag, or,
// without a tag, with its own name in lower case. Text such as addresses is a
// string in the message, a time a Timestamp, and a duration an int64 whose name
// ends in "_ns". An embedded struct is the message's field "resource", or the one
// with the name of the struct's type; without either, its fields are fields of
// the message itself.
//
// Fields that JSON leaves out stay on their side. Zero values are left out, as in
// proto3; a struct is left out only if its tag says omitzero.
package message
