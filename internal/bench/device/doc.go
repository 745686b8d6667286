// Package device is the experiment `culvert bench device`: throughput (RFC 9971) and
// latency of any device between two interfaces, and of built-in ones: functions of
// Linux and of Culvert, each in namespaces of its own with a thread that receives its
// packets on a CPU of its own.
package device
