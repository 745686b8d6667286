// Package class models traffic classes: which packets have a color, and so which of the
// policies to an endpoint they take (RFC 9256 section 8, ADR 24). It has values and pure
// functions.
//
// The data path classifies in two loads. A classifier belongs to a source of packets (an
// interface, a pod) and has a column for each DSCP. A row belongs
// to a destination and has a way for each column: a policy, and the class that counts the
// packet. Column 0 is best effort. Two packets have the same column if the same classes
// are candidates for them, in the same order; their destination decides which of these
// applies. Compile makes the columns, Table.Classifier a classifier, Table.Row a row.
package class
