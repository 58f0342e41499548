// Command demo shows the relay at work on this machine: a real MySQL, a real Kafka, an order service that writes orders and their outbox
// rows, the relay's own binary, and a consumer that prints what arrives. In the middle it kills the relay with SIGKILL and starts it again.
// At the end it compares every committed row with every message and prints the account.
//
// It exits 0 if nothing was lost, reordered or invented, 1 if something was or the demo could not run, 130 when it was interrupted. At a
// terminal it keeps everything running after the account, for a look at the relay's pages, until Ctrl-C; elsewhere, and with CI set, it
// ends by itself. Nothing stays behind but the cache folder of package sandbox.
package main
