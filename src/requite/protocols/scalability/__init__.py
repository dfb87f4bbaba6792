"""The scalability protocols: REQ and REP, end to end and hop by hop, and the device."""
