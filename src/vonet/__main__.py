from vonet.cli import main

main()
