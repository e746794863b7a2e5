"""Workers on other machines: how servers find them, hand them calls and take their answers, over NATS.

The server decides and records; a worker only runs (`fleet_worker/`). NATS carries sealed frames and is
trusted with nothing: who reads or forges its messages can delay calls, and no more.
"""
