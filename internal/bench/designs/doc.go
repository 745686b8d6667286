// Package designs is the experiment `culvert bench designs` (paper 003): four designs of a
// UPF and what the paper leaves to the future, on the same cores, with the same sessions.
//
//   - dp: XDP does all of a packet, and the daemon answers N4 (Culvert unless told otherwise).
//   - steer: XDP hands packets to the core of their UE, which does the rest (`spread`).
//   - cp: as dp, and the data path answers what SMFs send most (`upf.n4_fast`).
//   - both: as steer, with that too: data path, steering and signalling in XDP.
//   - soft: culvert-soft, the same C sources in user space over AF_XDP (`make soft`). It
//     polls for packets, so that its CPU time holds waiting.
//   - ideal: as dp, behind an ideal card: the generator picks the queue by the UE, and
//     thereby the core. Only its packets are measured, on one core and on all that there are.
//
// Each has a node of its own, whose threads share one CPU with the daemon and the program
// that receives. The generator and the SMFs have another one. Only one of the designs has
// work at a time. Events are what happens to a design under load: it doubles, a core comes
// and goes, one UE sends most.
package designs
