// Package buffer keeps the packets of idle UEs (Apply Action BUFF), in the order in
// which they came, and says when to report them to the SMF (NOCP).
//
// A Buffer belongs to one session, whose lock guards it. A Pool bounds and counts
// what all buffers hold; its methods may be called from any goroutine. The package
// starts no goroutines, and knows neither the data path nor the SMF.
package buffer
