package main

// Rules name time zones, and a small image has no database of them.
import _ "time/tzdata"
