// Package metrics shows the agent's figures to Prometheus, and its health to whoever
// restarts it or sends it packets.
//
// families is one table: a row has the name, the help and the labels of a metric,
// and the function that reads it. Its user calls Serve in a goroutine; each scrape
// reads the agent anew, and nothing here locks.
package metrics
